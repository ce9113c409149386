// A modal dialog. The browser keeps the focus inside and gives it back at the end.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

export interface DialogProps {
  open: boolean;
  title: ComponentChildren;
  onClose: () => void;
  children: ComponentChildren;
  /** wide: for tables and forms with several columns. */
  wide?: boolean;
}

/** focusFirstInput moves the focus to the first input of a form, or to its main button. */
export function focusFirstInput(form: HTMLElement) {
  form.querySelector<HTMLElement>(":is(input, select, textarea, button.main)")?.focus();
}

/**
 * Dialog shows its children over the page while it is open. Escape ends it through onClose, like its button. Browsers
 * report later that a dialog was closed: the report must not close one that a quick person has opened again.
 */
export function Dialog({ open, title, onClose, children, wide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const isClosing = useRef(false); // closed by its owner; the event follows
  const id = useId();
  useEffect(() => {
    const d = element.current!;
    if (open && !d.open) {
      d.showModal();
      const form = d.querySelector("form");
      if (form) focusFirstInput(form);
    }
    if (!open && d.open) {
      isClosing.current = true;
      d.close();
    }
  }, [open]);
  return (
    <dialog ref={element} aria-labelledby={id} class={wide ? "wide" : undefined}
      onClose={() => {
        if (!isClosing.current) onClose();
        isClosing.current = false; // by now it may be open again
      }}
      onCancel={(e) => {
        if (e.target !== e.currentTarget) return; // of a file chooser in it
        e.preventDefault();
        onClose();
      }}>
      {open && (
        <div class="dialog">
          <header>
            <h2 id={id}>{title}</h2>
            <button type="button" class="icon" aria-label="Close" onClick={onClose}>×</button>
          </header>
          {children}
        </div>
      )}
    </dialog>
  );
}
