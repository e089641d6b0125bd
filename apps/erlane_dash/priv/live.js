// SPDX-License-Identifier: Apache-2.0
// The connection to the node: history first, then server-sent events. It comes back by itself
// after a break, and lets go while the page is hidden, so that the node need not sample for it.

const HIDDEN_MS = 30000;
const BACKOFF_S = [1, 2, 4, 8, 10];

export class Live {
  /** Handlers: `state(name, text)`, `hello(node)`, `history([core])`, `tick({core, detail})`; `last()`
   * tells the newest moment that is known. `hello` is false where the page goes: nothing more then. */
  constructor(handlers) {
    this.on = handlers;
    this.source = null;
    this.tries = 0;
    this.timer = 0;
    this.watch = 0;
    this.heard = 0;
    this.interval = 1000;
    document.addEventListener("visibilitychange", () => this.visibility());
    window.addEventListener("online", () => this.soon(0));
    window.addEventListener("pagehide", () => this.close());
    window.addEventListener("pageshow", (event) => event.persisted && this.soon(0));
  }

  async start() {
    this.close();
    this.on.state("connecting", "connecting");
    const since = this.on.last();
    try {
      const response = await fetch("api/history?since=" + (Number.isFinite(since) ? since : 0));
      if (response.status === 401) {
        this.on.state("refused", "token needed: reload");
        return;
      }
      if (!response.ok) throw new Error(String(response.status));
      this.on.history(await response.json());
    } catch {
      this.broken();
      return;
    }
    this.open();
  }

  open() {
    const source = new EventSource("events");
    this.source = source;
    source.addEventListener("hello", (event) => {
      this.tries = 0;
      const node = JSON.parse(event.data);
      this.interval = node.interval;
      if (this.on.hello(node)) {
        this.hear("live");
      } else {
        this.close();
        this.on.state("connecting", "started again, loading");
      }
    });
    source.addEventListener("tick", (event) => {
      this.hear("live");
      this.on.tick(JSON.parse(event.data));
    });
    source.addEventListener("full", () => {
      this.tries = BACKOFF_S.length;
      this.broken("too many viewers");
    });
    source.addEventListener("error", () => {
      if (this.source === source) this.broken();
    });
  }

  hear(state) {
    this.heard = performance.now();
    this.on.state(state, "live");
    clearTimeout(this.watch);
    this.watch = setTimeout(() => {
      this.on.state("stalled", "no data for " + Math.round((performance.now() - this.heard) / 1000) + " s");
      this.watch = setTimeout(() => this.broken(), 10 * this.interval + 10000);
    }, 3 * this.interval + 1000);
  }

  broken(why = "disconnected") {
    this.close();
    const wait = BACKOFF_S[Math.min(this.tries, BACKOFF_S.length - 1)];
    this.tries += 1;
    this.on.state("broken", why + ", trying again in " + wait + " s");
    this.soon(wait * 1000);
  }

  soon(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), ms);
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.source?.close();
    this.source = null;
  }

  visibility() {
    clearTimeout(this.asleep);
    if (document.hidden) {
      this.asleep = setTimeout(() => {
        this.close();
        this.on.state("hidden", "not watching while hidden");
        this.away = true;
      }, HIDDEN_MS);
    } else if (this.away) {
      this.away = false;
      this.soon(0);
    }
  }
}
