/** Trigger is a promise that is resolved from outside, once. */
export class Trigger<T> {
  readonly fired: Promise<T>;
  #value: T | undefined;
  #hasFired = false;
  #resolve!: (value: T) => void;

  constructor() {
    this.fired = new Promise((resolve) => (this.#resolve = resolve));
  }

  fire(value: T): void {
    if (this.#hasFired) return;
    this.#hasFired = true;
    this.#value = value;
    this.#resolve(value);
  }

  get hasFired(): boolean {
    return this.#hasFired;
  }

  /** value is what it was fired with. */
  get value(): T | undefined {
    return this.#value;
  }
}
