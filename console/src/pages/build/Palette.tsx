/** Everything a pipeline can be made of: drag it to the canvas, or press it. */
import { useMemo, useState } from "react";
import { Icon } from "../../ui/Icon";
import type { Component } from "../../logic/build/model";

export const DRAGGED = "application/x-penstock-component";
const GROUPS = [["source", "Sources"], ["step", "Steps"], ["sink", "Sinks"]] as const;

interface Props {
  components: readonly Component[];
  add: (component: Component) => void;
}

export function Palette({ components, add }: Props) {
  const [wanted, setWanted] = useState("");
  const found = useMemo(() => {
    const word = wanted.trim().toLowerCase();
    return components.filter(({ name, doc }) => word === "" || name.includes(word) || doc.toLowerCase().includes(word));
  }, [components, wanted]);
  return (
    <aside className="palette" aria-label="Components">
      <input type="search" placeholder="Find…" aria-label="Find a component" value={wanted} onChange={(event) => setWanted(event.target.value)} />
      <div className="palette-list">
        {GROUPS.map(([kind, title]) => {
          const mine = found.filter((each) => each.kind === kind);
          return mine.length > 0 && (
            <section key={kind}>
              <h2>{title}</h2>
              {mine.map((component) => (
                <button
                  key={component.name} type="button" className="piece" draggable title={firstSentence(component.doc)} onClick={() => add(component)}
                  aria-label={`Add ${kind} ${component.name}`}
                  onDragStart={(event) => {
                    event.dataTransfer.setData(DRAGGED, JSON.stringify([component.kind, component.name]));
                    event.dataTransfer.effectAllowed = "copy";
                  }}
                >
                  <Icon component={component.name} kind={kind} />{component.name}
                </button>
              ))}
            </section>
          );
        })}
        {found.length === 0 && <p className="quiet">Nothing is like that.</p>}
      </div>
    </aside>
  );
}

function firstSentence(doc: string): string {
  return doc.split("\n")[0] ?? "";
}
