import { EventList } from "../../events/EventList";

export default function EventsTab({ name }: { name: string }) {
  return <EventList pipeline={name} />;
}
