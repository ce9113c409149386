const backoffBase = 100;
const backoffMax = 5000;
/** refusedBase is the shortest pause after a node has refused the worker's credential or role. */
const refusedBase = 2000;
/** unreachedBase and unreachedMax bound the pause for advertised addresses that were never reached. */
const unreachedBase = 5000;
const unreachedMax = 60_000;
/** maxBriefSessions is how many sessions in a row may end at once before their address counts as failed. */
const maxBriefSessions = 5;
/** maxAdvertised bounds the addresses remembered beside the configured ones. */
const maxAdvertised = 32;
/** maxUnverifiedDials bounds the concurrent dials to addresses that have never led to a node. */
const maxUnverifiedDials = 3;

/** Route is an address of nodes, with its history. Times are by the monotonic clock, in milliseconds. */
export class Route {
  wasWelcomed = false;
  /** hasAnswered: a node has answered there, also with a refusal. */
  hasAnswered = false;
  failures = 0;
  totalFailures = 0;
  briefSessions = 0;
  /** retryAt: it is not tried before that time. */
  retryAt = -Infinity;
  isDialing = false;
  /** rank is random, so that workers prefer different addresses of the same class. */
  rank = Math.random();

  constructor(
    readonly address: string,
    readonly isConfigured: boolean,
  ) {}

  /** isUnverified reports whether no node has answered at an advertised address yet. */
  get isUnverified(): boolean {
    return !this.isConfigured && !this.hasAnswered;
  }

  /** isUnreached reports whether it has failed and has never led to a node. Behind a load balancer all advertised
   * addresses are such routes. */
  get isUnreached(): boolean {
    return this.isUnverified && this.failures > 0;
  }

  /** isPromising reports whether it may lead to a node. */
  get isPromising(): boolean {
    return !this.isUnreached && this.failures < 2;
  }

  countFailure(now: number, without: number, base = backoffBase): void {
    this.failures++;
    this.totalFailures++;
    let pause = Math.min(Math.max(base === refusedBase ? without : without / 4, base), backoffMax);
    if (this.isUnreached && base !== refusedBase) pause = Math.min(Math.max(without, unreachedBase), unreachedMax);
    this.retryAt = now + pause / 2 + Math.random() * (pause / 2);
  }
}

/** Routes are the addresses that a worker knows. */
export class Routes {
  #all: Route[];
  /** current is the address of the last session. */
  #current = "";
  /** preferred are addresses from a Drain, until the next session. */
  #preferred: readonly string[] = [];

  constructor(configured: readonly string[]) {
    this.#all = [...new Set(configured)].map((address) => new Route(address, true));
  }

  find(address: string): Route | undefined {
    return this.#all.find((r) => r.address === address);
  }

  /** replaceAdvertised replaces the advertised addresses. An empty list changes nothing. The address of the current
   * session stays. */
  replaceAdvertised(addresses: readonly string[]): void {
    if (addresses.length === 0) return;
    this.#all = this.#all.filter(
      (r) => r.isConfigured || r.isDialing || r.address === this.#current || addresses.includes(r.address),
    );
    this.#addAdvertised(addresses);
  }

  /** prefer makes the next session try these addresses first. They come from a node that drains. */
  prefer(addresses: readonly string[]): void {
    this.#addAdvertised(addresses);
    this.#preferred = addresses;
    for (const address of addresses) {
      const route = this.find(address);
      if (route && !route.isUnreached) {
        route.failures = 0;
        route.retryAt = -Infinity;
      }
    }
  }

  #addAdvertised(addresses: readonly string[]): void {
    for (const address of addresses) {
      if (this.find(address)) continue;
      if (!this.#makeRoom()) break;
      this.#all.push(new Route(address, false));
    }
    this.#shuffleRanks();
  }

  /** #makeRoom keeps the number of advertised addresses within bounds: those that were never reached go first. */
  #makeRoom(): boolean {
    if (this.#all.filter((r) => !r.isConfigured).length < maxAdvertised) return true;
    const i = this.#all.findIndex((r) => r.isUnreached && !r.isDialing);
    if (i >= 0) this.#all.splice(i, 1);
    return i >= 0;
  }

  #shuffleRanks(): void {
    for (const route of this.#all) route.rank = Math.random();
  }

  /** markWelcomed records that a session has begun. */
  markWelcomed(route: Route): void {
    route.wasWelcomed = true;
    route.hasAnswered = true;
    route.failures = 0;
    route.retryAt = -Infinity;
    this.#current = route.address;
    this.#preferred = [];
    if (!this.find(route.address)) this.#all.push(route);
    this.#shuffleRanks();
  }

  /** markFailed records a failed attempt to connect. The pause until the next one grows with the time without a
   * session: a worker returns soon after a short outage and backs off in a long one. */
  markFailed(route: Route, now: number, without: number): void {
    route.countFailure(now, without);
  }

  /** markRefused records that a node refused the worker's credential or role: only a new token or role helps. */
  markRefused(route: Route, now: number, without: number): void {
    route.countFailure(now, without, refusedBase);
  }

  /** markEnded records that a session was cut. */
  markEnded(address: string, now: number, atOnce: boolean, without: number): void {
    const route = this.find(address);
    if (!route) return;
    route.briefSessions = atOnce ? route.briefSessions + 1 : 0;
    if (route.briefSessions >= maxBriefSessions) route.countFailure(now, without);
  }

  /** claimNext returns the best route that may be tried now and marks it as dialing. If there is none it returns when
   * there will be one; Infinity: not before a dial has ended. `avoid` is the address of an open session, which is
   * skipped while other routes may lead to a node. */
  claimNext(now: number, avoid: string | undefined): { route?: Route; at: number } {
    const unverified = this.#all.filter((r) => r.isDialing && r.isUnverified).length;
    const hasOthers = this.#all.some((r) => r.address !== avoid && !r.isUnverified && r.isPromising);
    let best: Route | undefined;
    let at = Infinity;
    for (const r of this.#all) {
      if (r.isDialing || (r.isUnverified && unverified >= maxUnverifiedDials) || (r.address === avoid && hasOthers))
        continue;
      if (r.retryAt > now) at = Math.min(at, r.retryAt);
      else if (!best || this.#isBetter(r, best, avoid)) best = r;
    }
    if (!best) return { at };
    best.isDialing = true;
    return { route: best, at };
  }

  #isBetter(a: Route, b: Route, avoid: string | undefined): boolean {
    const [x, y] = [this.#priorityClass(a, avoid), this.#priorityClass(b, avoid)];
    if (x !== y) return x < y;
    if ((a.failures === 0) !== (b.failures === 0)) return a.failures === 0;
    return a.rank < b.rank;
  }

  /** #priorityClass returns the route's class; lower classes are tried first. */
  #priorityClass(r: Route, avoid: string | undefined): number {
    if (r.isUnreached) return 6;
    if (r.address === avoid) return 5;
    if (this.#preferred.includes(r.address)) return 0;
    if (r.address === this.#current && r.failures === 0) return 1;
    if (r.isConfigured) return 2;
    return r.wasWelcomed ? 3 : 4;
  }
}
