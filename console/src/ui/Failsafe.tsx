/** What fails while it is drawn fails alone: the frame stays, and says so. */
import { Component, type ReactNode } from "react";
import { Refused } from "./states";

export class Failsafe extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    return error === null ? this.props.children : <Refused error={error} again={() => this.setState({ error: null })} />;
  }
}
