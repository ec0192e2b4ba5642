/** A question before something is done. The browser's own dialog keeps the focus inside and closes on Escape. */
import { type ReactNode, useEffect, useId, useRef, useState } from "react";

interface DialogProps {
  title: string;
  close: () => void;
  children: ReactNode;
}

export function Dialog({ title, close, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    // Closing gives the focus back to where it was.
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={id} onClose={close} onCancel={close}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  children: ReactNode;
  action: string;
  /** A word that has to be typed, where something would be lost. */
  word?: string | undefined;
  busy: boolean;
  confirm: () => void;
  close: () => void;
}

export function Confirm({ title, children, action, word, busy, confirm, close }: ConfirmProps) {
  const [typed, setTyped] = useState("");
  const ready = !busy && (word === undefined || typed === word);
  return (
    <Dialog title={title} close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) confirm();
        }}
      >
        {children}
        {word !== undefined && (
          <label className="field">
            Type <b>{word}</b> to go on
            <input value={typed} onChange={(event) => setTyped(event.target.value)} autoComplete="off" autoFocus spellCheck={false} />
          </label>
        )}
        <div className="buttons end">
          <button type="button" onClick={close}>Cancel</button>
          <button type="submit" className={word === undefined ? "primary" : "danger"} disabled={!ready} autoFocus={word === undefined}>
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
