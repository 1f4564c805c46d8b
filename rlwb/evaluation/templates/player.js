// Plays a run's policy in report.html: it reads the bars, decides and trades as rlwb does.
//
// Numbers come from backtest/player.json (rlwb/experiment/player.py). The parts follow, line by line,
// rlwb/policy/{signals,price_filter,heads,network}.py (32-bit floats, by Math.fround) and rlwb/execution/{kernel,engine,
// metrics,costs}.py (64-bit floats). docs/report.md says how the page is checked against the backtest.
"use strict";

const f32 = Math.fround;
const TOLERANCE = 1e-9; // share of the amount below which an order is complete
const SAME_SHARE = 1e-6; // shares closer than this ask for the same
const LOWEST = -3.4028234663852886e38;

function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const kinds = { f4: Float32Array, f8: Float64Array, i4: Int32Array };
  return new kinds[packed.type](bytes.buffer);
}

function unpackAll(value) {
  if (value === null || typeof value !== "object") return value;
  if (typeof value.data === "string" && value.shape) return unpack(value);
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map(unpackAll) : value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpackAll(each)]));
}

const isPrice = (price) => price > 0 && price < Infinity;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// ---- the network ----------------------------------------------------------------------------------------------------

function linear(layer, input) {
  const { weight, bias } = layer;
  return Float64Array.from(bias, (start, row) => {
    let sum = start;
    for (let at = 0; at < input.length; at++) sum += weight[row * input.length + at] * input[at];
    return f32(sum);
  });
}

const relu = (values) => values.map((value) => Math.max(value, 0));

// The states after 0, 1, ... T ticks of a session: traces, the filter's mean and error, the overnight gap, the last
// price, the activity and the share of the session passed (TraceEncoder, PriceFilter).
function encode(signals, day) {
  const { decays, usual, slopes, usual_variance: usualVariance } = signals;
  const ticks = usual.length;
  const { phi, morning, gain, level_efficient: levelEfficient, level_transient: levelTransient } = signals.law;
  const stated = (name, value) => f32(1e4 * f32(f32(value * signals.scale[name]) + signals.mean[name]));
  const back = f32(phi - 1), rest = f32(f32(1 - phi) ** 2), square = f32(phi * phi), shared = f32(phi * back);
  const gap = day.open === undefined ? 0 : stated("open", day.open);
  let mean = f32(gain * gap), error = f32(morning - f32(gain * morning)), last = gap, activity = 0;
  const traces = new Float64Array(decays.length);
  const states = [new Float64Array(decays.length + 6)];
  for (let tick = 0; tick < ticks; tick++) {
    const price = stated("close", day.close[tick]);
    const move = f32(price - last);
    last = price;
    let surprise = 0;
    if (day.volume) surprise = clamp(f32(f32(day.volume[tick] - usual[tick]) / signals.deviation), -4, 4);
    const before = activity;
    activity = f32(0.5 * activity + 0.5 * surprise);
    const variance = (level, row) => {
      const driven = f32(f32(slopes[2 * row] * surprise) + f32(slopes[2 * row + 1] * before));
      return f32(f32(Math.exp(f32(level + driven))) * usualVariance[tick]);
    };
    const efficient = variance(levelEfficient, 0), transient = variance(levelTransient, 1);
    const news = f32(move - f32(back * mean));
    const total = f32(f32(efficient + f32(rest * error)) + transient);
    const both = f32(f32(shared * error) + transient);
    const weight = f32(both / total);
    mean = f32(f32(phi * mean) + f32(weight * news));
    error = f32(f32(f32(square * error) + transient) - f32(weight * both));
    for (let at = 0; at < traces.length; at++) traces[at] = f32(f32(decays[at] * traces[at]) + move);
    states.push(Float64Array.from([...traces, mean, error, gap, last, activity, f32((tick + 1) / ticks)]));
  }
  return states;
}

// What waiting is expected to bring a sale, in basis points: against all later steps, and against the next one.
function forecasts(signals, state) {
  const count = signals.decays.length, passed = state[count + 5];
  const known = [...state.slice(0, count + 1), state[count + 2]];
  const powers = [1, passed, f32(passed * passed), f32(passed ** 3)];
  return [0, 1].map((which) => {
    const own = signals.coefficients.subarray(which * known.length * 4);
    return sum32(known.flatMap((value, row) => powers.map((power, at) => f32(f32(value * power) * own[4 * row + at]))));
  });
}

// A sum of few 32-bit floats in the order in which torch adds them, in eight lanes: large parts cancel here.
function sum32(values) {
  const rest = values.length % 8, whole = values.length - rest;
  const lanes = values.slice(0, whole).reduce((sums, value, at) => {
    sums[at % 8] = at < 8 ? value : f32(sums[at % 8] + value);
    return sums;
  }, []);
  return [...values.slice(whole), ...lanes].reduce((sum, value) => f32(sum + value), 0);
}

// ---- the policy -----------------------------------------------------------------------------------------------------

class Policy {
  constructor(data) {
    this.data = data;
    this.distinct = [...new Set(data.shares)].sort((a, b) => a - b);
    this.rank = data.shares.map((share) => this.distinct.indexOf(share));
    this.cache = new Map();
  }

  states(session) {
    if (!this.cache.has(session)) {
      const { market, times } = this.data, ticks = times.start.length;
      const of = (name) => market[name]?.subarray(session * ticks, (session + 1) * ticks);
      const day = { close: of("feature_close"), volume: of("feature_volume"), open: market.feature_open?.[session] };
      this.cache.set(session, encode(this.data.signals, day));
    }
    return this.cache.get(session);
  }

  // Which shares differ in what they ask for; `left` is the position over the amount (ActionMask).
  allowed(left, isLast) {
    const { data, distinct, rank } = this;
    if (!data.head.mask) return data.shares.map(() => true);
    const covering = distinct.filter((share) => share < left - SAME_SHARE).length;
    const largest = Math.min(covering, distinct.length - 1);
    return data.shares.map(
      (share, at) =>
        data.shares.indexOf(share) === at &&
        rank[at] <= largest &&
        (!(isLast && data.head.mask_completes) || rank[at] === largest),
    );
  }

  // The chances that an untrained policy begins with (EvenStart).
  start(left, stepsLeft, allowed) {
    const { shares } = this.data;
    const ask = shares.map((share) => Math.min(share, left));
    let least = 0;
    shares.forEach((share, at) => {
      if (allowed[at] && (!allowed[least] || share < shares[least])) least = at;
    });
    const others = shares.map((_, at) => allowed[at] && at !== least);
    const count = others.filter(Boolean).length;
    const sum = ask.reduce((total, value, at) => total + (others[at] ? value : 0), 0);
    const way = sum / Math.max(count, 1) - ask[least];
    const wanted = left / Math.max(stepsLeft, 1) - ask[least];
    const c = count === 0 ? 0 : clamp(way > 0 ? wanted / way : count / (count + 1), 0.01, 0.99);
    return shares.map((_, at) => (at === least ? 1 - c : others[at] ? c / Math.max(count, 1) : 0));
  }

  // The decision at a step: scores, chances (of a policy of chances), which action, and what waiting is expected to bring.
  decide(known) {
    const { data } = this;
    const amount = f32(known.amount), position = f32(known.position), stepsLeft = known.steps - known.step;
    const scalars = [f32(position / amount), f32(known.step / known.steps), f32(1 / Math.max(stepsLeft, 1))];
    let input, expected = null;
    if (data.signals) {
      const { signals } = data, count = signals.decays.length, state = this.states(known.session)[known.tick];
      const side = known.side > 0 ? -1 : 1, most = f32(2.5 / 0.6);
      const active = clamp(state[count + 4], -most, most), calm = f32(Math.exp(f32(-0.5 * 0.6 * active)));
      expected = forecasts(signals, state).map((value) => side * value);
      const signed = expected.map((value, at) => f32(value / signals.unit[at]));
      const moved = f32(f32(side * f32(state[count + 3] - state[count + 2])) / signals.usual_move);
      const left = Array.from({ length: data.max_step }, (_, at) => (at === clamp(stepsLeft, 1, data.max_step) - 1 ? 1 : 0));
      input = [...signed, ...signed.map((value) => f32(value * calm)), moved, active, ...scalars, state[count + 5], ...left];
    } else {
      const { table, layer } = data.mlp, hidden = table.length / 2, row = known.side > 0 ? 1 : 0;
      input = [...scalars, ...relu(linear(layer, relu(table.slice(row * hidden, (row + 1) * hidden))))];
    }
    for (const layer of data.layers) input = relu(linear(layer, input));
    if (data.dial_layer) {
      const each = linear(data.dial_layer, input), place = this.place(known.aversion), width = input.length;
      input = relu(input.map((_, at) => f32(place.reduce((sum, weight, which) => sum + weight * each[which * width + at], 0))));
    }
    const raw = linear(data.head, input), left = position / amount;
    if (data.head.kind === "number") return { action: this.number(raw[0], stepsLeft), expected };
    const allowed = this.allowed(left, stepsLeft <= 1);
    let scores = [...raw];
    if (data.head.even_start) {
      const chances = this.start(left, stepsLeft, allowed);
      scores = scores.map((score, at) => f32(score + f32(Math.log(Math.max(chances[at], 1e-30)))));
    }
    const masked = scores.map((score, at) => (allowed[at] ? score : LOWEST));
    const best = Math.max(...masked), action = masked.indexOf(best);
    const made = { action, allowed, expected, scores: data.head.kind === "chance" ? masked : scores, chances: null };
    if (data.head.kind === "chance") {
      const weights = masked.map((score) => Math.exp(score - best)), total = weights.reduce((a, b) => a + b);
      made.chances = weights.map((weight) => weight / total);
    }
    return made;
  }

  // A share of what is left, or a multiple of the even pace: log odds of the even pace and what the network adds
  // (BoundedActorCritic, ShareHead); all of it in the last step.
  number(added, stepsLeft) {
    const { high, unit } = this.data.head;
    if (stepsLeft <= 1) return high;
    const pace = clamp(f32(1 / (high === 1 ? stepsLeft : high)), f32(1e-3), f32(1 - 1e-3));
    const odds = f32(f32(Math.log(pace / f32(1 - pace))) + f32(unit * added));
    return f32(high * f32(1 / (1 + Math.exp(-odds))));
  }

  // Where an aversion lies on the dial: weights of the settings with sum 1 (Objective.place).
  place(aversion) {
    const { dial } = this.data;
    const above = dial.findIndex((one) => one >= aversion);
    return dial.map((one, at) => {
      if (above === -1) return at === dial.length - 1 ? 1 : 0;
      if (above === 0) return at === 0 ? 1 : 0;
      const share = (aversion - dial[above - 1]) / (dial[above] - dial[above - 1]);
      return f32(at === above ? share : at === above - 1 ? 1 - share : 0);
    });
  }
}

// ---- the engine -----------------------------------------------------------------------------------------------------

class Engine {
  constructor(data) {
    this.data = data;
    this.rules = data.rules;
    this.ticks = data.times.start.length;
    this.stop = data.cell.map((one) => data.cell.lastIndexOf(one) + 1);
  }

  at(name, session, tick) {
    return this.data.market[name][session * this.ticks + tick];
  }

  priced(session, first, stop) {
    let count = 0;
    for (let tick = first; tick < stop; tick++) if (isPrice(this.at("price", session, tick))) count++;
    return count;
  }

  cap(volume) {
    const { volume_limit: limit, lot } = this.rules;
    if (limit === null) return Infinity;
    const cap = volume > 0 ? limit * volume : 0;
    return lot > 0 ? Math.floor(cap / lot + TOLERANCE) * lot : cap;
  }

  // Executes one step in place and returns what each of its ticks filled (rlwb.execution.kernel.advance).
  advance(order, now, ask) {
    const { rules } = this, { market } = this.data, { session, side, amount } = order;
    const root = (share, isRoot) => (isRoot ? Math.sqrt(share) : share);
    const round = (value) => Math.floor(value / rules.lot + 0.5) * rules.lot;
    const impact = rules.temporary > 0 || rules.permanent > 0 || rules.transient > 0;
    const stop = Math.min(order.end, this.stop[now.tick]), isLast = stop === order.end;
    const everything = ask >= now.position - TOLERANCE * amount;
    const odd = rules.lot > 0 ? amount - Math.floor(amount / rules.lot + TOLERANCE) * rules.lot : 0;
    const tradesOdd = rules.odd_lot === "trade_at_end" || (rules.odd_lot === "sell_at_end" && side < 0);
    const priced = this.priced(session, now.tick, stop), powers = rules.decay.length > 0;
    const fills = [];
    let seen = 0, filled = 0, scheduled = 0, value = 0, stays = now.stays, at = now.tick;
    for (let tick = now.tick; tick < stop; tick++) {
      const price = this.at("price", session, tick);
      if (!isPrice(price)) continue;
      seen++;
      const closing = isLast && seen === priced && (rules.complete_at_end || everything);
      let due = seen === priced ? ask : (ask * seen) / priced;
      if (rules.lot > 0) due = round(now.requested + due) - round(now.requested);
      const available = closing && tradesOdd ? now.position : now.position - odd;
      let want = closing ? available : isLast && rules.catch_up ? due - filled : due - scheduled;
      scheduled = due;
      want = Math.max(Math.min(want, available), 0);
      let traded = want, isFree = true;
      const low = market.lower ? market.lower[session] : -Infinity, high = market.upper ? market.upper[session] : Infinity;
      const halted = market.halted && this.at("halted", session, tick);
      if (halted || (side > 0 && price >= high) || (side < 0 && price <= low)) {
        traded = 0;
        isFree = false;
      } else if (rules.volume_limit !== null) {
        const room = this.cap(this.at("volume", session, tick));
        if (traded > room) {
          traded = room;
          isFree = false;
        }
      }
      if (isFree && traded > 0 && now.position - traded <= TOLERANCE * amount) traded = now.position;
      now.position -= traded;
      filled += traded;
      value += traded * price;
      if (traded > 0) {
        let extra = market.half_spread ? traded * this.at("half_spread", session, tick) : 0;
        if (impact) {
          const taken = Math.min(traded / this.at("volume", session, tick), 1);
          extra += traded * price * (now.moved + rules.temporary * root(taken, rules.temporary_root));
          if (rules.permanent > 0) now.moved += rules.permanent * root(taken, rules.permanent_root);
          if (rules.transient > 0) {
            const move = rules.transient * root(taken, rules.transient_root);
            if (powers) {
              stays = 0;
              for (const [past, size] of now.moves) stays += size * rules.decay[tick - past];
              now.moves.push([tick, move]);
            } else {
              for (; at < tick; at++) stays *= rules.kept;
            }
            extra += traded * price * (stays + (rules.transient_root ? (move * 2) / 3 : move / 2));
            stays += move;
          }
        }
        now.cost += extra;
        fills.push({ tick, amount: traded, price });
      }
    }
    if (rules.transient > 0 && !powers) for (; at < stop; at++) stays *= rules.kept;
    now.stays = stays;
    now.requested += ask;
    now.filled = now.position === 0 ? amount : now.filled + filled;
    now.notional += value;
    const whole = rules.lot > 0 ? amount - odd : amount;
    const onlyOdd = rules.lot > 0 && !tradesOdd && now.position - (amount - whole) <= TOLERANCE * amount;
    now.done = now.position <= TOLERANCE * amount || onlyOdd || stop >= order.end;
    now.tick = stop;
    now.step++;
    return fills;
  }

  // Runs an order by `decide`, which takes what is known to a request and what to keep of the decision.
  run(order, decide) {
    const { cell } = this.data, steps = cell[order.end - 1] - cell[order.start] + 1, made = [];
    const now = { tick: order.start, step: 0, position: order.amount, requested: 0, filled: 0, notional: 0, cost: 0 };
    Object.assign(now, { moved: 0, moves: [], stays: 0, done: false });
    while (!now.done) {
      const known = { ...order, tick: now.tick, step: now.step, steps, position: now.position };
      const completes = now.step >= steps - 1 && this.rules.complete_at_end;
      const decision = decide(known);
      const request = completes ? now.position : Math.min(decision.request, now.position);
      const fills = this.advance(order, now, request);
      made.push({ ...decision, tick: known.tick, step: known.step, before: known.position, request, fills, after: now.position });
    }
    return { order, steps: made, filled: now.filled, ...this.figures(order, now) };
  }

  even(known) {
    const now = this.priced(known.session, known.tick, Math.min(known.end, this.stop[known.tick]));
    const left = Math.max(this.priced(known.session, known.tick, known.end), now);
    return { request: known.position * (left > 0 ? now / left : 0) };
  }

  // The last price before a tick: the closing price where there is one, else the one that fills are valued at.
  lastPrice(session, stop, orElse = true) {
    const name = this.data.market.closing ? "closing" : "price";
    for (let tick = stop - 1; tick >= 0; tick--) {
      if (isPrice(this.at(name, session, tick))) return this.at(name, session, tick);
      if (orElse && isPrice(this.at("price", session, tick))) return this.at("price", session, tick);
    }
    return NaN;
  }

  opening(session, tick) {
    return this.data.market.opening ? this.at("opening", session, tick) : NaN;
  }

  benchmarks(order) {
    const { session, start, end } = order, prices = [];
    let value = 0, volume = 0;
    for (let tick = start; tick < end; tick++) {
      const price = this.at("price", session, tick);
      if (!isPrice(price)) continue;
      prices.push(price);
      const traded = this.data.market.volume ? this.at("volume", session, tick) : 0;
      if (traded > 0) {
        value += price * traded;
        volume += traded;
      }
    }
    const sum = prices.reduce((total, price) => total + price, 0), before = this.lastPrice(session, start, false);
    const opened = this.opening(session, start), quoted = this.rules.price_field === "quotes";
    let first = NaN;
    for (let tick = 0; tick < this.ticks && !isPrice(first); tick++) {
      first = isPrice(this.opening(session, tick)) ? this.opening(session, tick) : this.at("price", session, tick);
    }
    const found = {
      twap: prices.length ? sum / prices.length : NaN,
      vwap: volume > 0 ? value / volume : NaN,
      arrival: isPrice(opened) && !(quoted && isPrice(before)) ? opened : isPrice(before) ? before : (prices[0] ?? NaN),
      open: first,
      close: this.lastPrice(session, this.ticks),
      end: this.lastPrice(session, end),
    };
    return found;
  }

  // Price advantage before and after costs, in basis points (rlwb.execution.metrics, rlwb.execution.costs).
  figures(order, now) {
    const { rules } = this, { side, amount } = order, known = this.benchmarks(order), mark = known[rules.benchmark];
    const fee = now.notional > 0 ? Math.max((now.notional * rules.commission_bps) / 1e4, rules.min_fee) : 0;
    const tax = side < 0 ? (now.notional * rules.sell_tax_bps) / 1e4 : 0;
    const paid = now.notional * (1 + (side * rules.half_spread_bps) / 1e4) + side * (fee + tax + now.cost);
    const advantage = (value) => {
      const rest = rules.unfilled_at === null ? 0 : (amount - now.filled) * known[rules.unfilled_at];
      const whole = rules.unfilled_at === null ? now.filled : amount;
      return whole > 0 ? side * (1 - (value + rest) / whole / mark) * 1e4 : NaN;
    };
    return { pa: advantage(rules.have_costs ? paid : now.notional), mark, ffr: now.filled / amount };
  }
}

// ---- orders ---------------------------------------------------------------------------------------------------------

class Player {
  constructor(raw) {
    this.data = unpackAll(raw);
    this.policy = new Policy(this.data);
    this.engine = new Engine(this.data);
    this.count = this.data.orders.id.length;
  }

  order(number) {
    const { id, instrument, date, ...numbers } = this.data.orders;
    const own = Object.fromEntries(Object.entries(numbers).map(([name, values]) => [name, values[number]]));
    return { number, id: id[number], instrument: instrument[number], date: date[number], ...own };
  }

  play(order) {
    return this.engine.run(order, (known) => {
      const made = this.policy.decide(known), { action } = made;
      const asks = {
        choice: () => this.data.shares[action] * known.amount,
        share: () => action * known.position,
        pace: () => action * this.engine.even(known).request,
      };
      return { ...made, request: Math.min(asks[this.data.acts ?? "choice"](), known.position) };
    });
  }

  even(order) {
    return this.engine.run(order, (known) => this.engine.even(known));
  }

  // Compares orders as they were with the backtest: how many differ, and the largest difference of what is left after a
  // step (as a share of the amount) and of the PA (in basis points).
  check(first = 0, stop = this.count) {
    const { left, pa } = this.data.recorded, width = left.length / this.count;
    let differ = 0, apart = 0, bp = 0;
    for (let number = first; number < stop; number++) {
      const order = this.order(number), made = this.play(order);
      let own = 0;
      for (let at = 1; at < width; at++) {
        const share = (made.steps[Math.min(at, made.steps.length) - 1].after) / order.amount;
        own = Math.max(own, Math.abs(share - left[number * width + at]));
      }
      const away = Number.isNaN(made.pa) && Number.isNaN(pa[number]) ? 0 : Math.abs(made.pa - pa[number]);
      if (!(own <= 1e-6) || !(away <= 1e-3)) differ++;
      apart = Math.max(apart, own);
      bp = Math.max(bp, away);
    }
    return { orders: stop - first, differ, apart, bp };
  }

  // All decisions of all orders, for tests.
  all() {
    return Array.from({ length: this.count }, (_, number) => {
      const { steps, pa } = this.play(this.order(number));
      return { pa, steps: steps.map(({ action, scores, chances, after }) => ({ action, scores, chances, after })) };
    });
  }
}

// ---- what is shown --------------------------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const isSvg = ["svg", "path", "circle", "rect", "line", "text", "g", "title"].includes(name);
  const made = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const number = (value, digits = 2) =>
  Number.isFinite(value)
    ? value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-(0\.?0*)$/, "$1")
    : "none";
const signed = (value) => (value > 0 && number(value) !== "0.00" ? "+" : "") + number(value);
const percent = (share) => `${number(100 * share, share > 0.0005 && share < 0.0995 ? 1 : 0)} %`;

// A chart over the ticks of a session, in which a break between segments is a gap.
class Chart {
  constructor(holder, data, width, height) {
    Object.assign(this, { holder, data, width, height, left: 48, right: 8, top: 8, bottom: 22 });
    this.ticks = data.segment.length;
    this.gap = this.ticks / 40;
    this.parts = [];
  }

  x(tick) { // at the beginning of a tick, or the end of the last one
    const { segment } = this.data, last = segment[this.ticks - 1];
    const at = tick + this.gap * segment[Math.min(tick, this.ticks - 1)];
    return this.left + (at / (this.ticks + this.gap * last)) * (this.width - this.left - this.right);
  }

  end(tick) { // at the end of a tick
    return this.x(tick) + this.x(1) - this.x(0);
  }

  scale(low, high, ticks, name) {
    this.y = (value) => this.top + ((high - value) / (high - low || 1)) * (this.height - this.top - this.bottom);
    for (const value of ticks) {
      const y = this.y(value);
      this.add("line", { class: "grid", x1: this.left, x2: this.width - this.right, y1: y, y2: y });
      this.add("text", { x: this.left - 5, y: y + 4, "text-anchor": "end" }, name(value));
    }
    const { times, segment } = this.data;
    const edges = [0, ...segment.keys()].filter((tick, at, all) => at === 0 || (tick > 0 && segment[tick] !== segment[tick - 1]));
    for (const tick of edges) {
      this.add("text", { x: this.x(tick), y: this.height - 6, "text-anchor": tick ? "middle" : "start" }, times.start[tick]);
    }
    this.add("text", { x: this.width - this.right, y: this.height - 6, "text-anchor": "end" }, times.end[this.ticks - 1]);
  }

  add(name, attributes, ...children) {
    this.parts.push(element(name, attributes, ...children));
  }

  line(points, css) {
    const path = points.map(([x, y], at) => (y === null ? "" : `${at && points[at - 1][1] !== null ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`));
    this.add("path", { class: css, d: path.join("") });
  }

  show(label) {
    const box = `0 0 ${this.width} ${this.height}`;
    this.holder.replaceChildren(element("svg", { viewBox: box, role: "img", "aria-label": label }, ...this.parts));
  }
}

function drawPrices(holder, width, player, made) {
  const { data, engine } = player, { order } = made, chart = new Chart(holder, data, width, 190);
  const prices = Array.from({ length: chart.ticks }, (_, tick) => engine.at("price", order.session, tick));
  const known = prices.filter(isPrice), low = Math.min(...known, made.mark), high = Math.max(...known, made.mark);
  const digits = high - low > 10 ? 1 : 2;
  chart.add("rect", { class: "window", x: chart.x(order.start), y: chart.top, width: chart.end(order.end - 1) - chart.x(order.start), height: chart.height - chart.top - chart.bottom });
  chart.scale(low, high, [low, (low + high) / 2, high], (value) => number(value, digits));
  const points = [];
  prices.forEach((price, tick) => {
    if (tick && data.segment[tick] !== data.segment[tick - 1]) points.push([0, null]);
    points.push([chart.end(tick), isPrice(price) ? chart.y(price) : null]);
  });
  chart.line(points, "price");
  chart.line([[chart.x(order.start), chart.y(made.mark)], [chart.end(order.end - 1), chart.y(made.mark)]], "mark");
  for (const fill of made.steps.flatMap((step) => step.fills)) {
    if (!(fill.amount > 0)) continue;
    const radius = 1.5 + 7 * Math.sqrt(fill.amount / order.amount);
    chart.add("circle", { class: "fill", cx: chart.end(fill.tick), cy: chart.y(fill.price), r: radius });
  }
  const first = made.steps.find((step) => step.fills.some((fill) => fill.amount > 0));
  chart.show(
    `Price over the session, from ${number(low, digits)} to ${number(high, digits)}, with the fills as dots` +
      (first ? `, the first at ${data.times.start[first.tick]}` : "") + `, and the benchmark ${number(made.mark, digits)} dashed.`,
  );
}

function drawLeft(holder, width, player, made, even) {
  const { data } = player, chart = new Chart(holder, data, width, 130);
  chart.scale(0, 1, [0, 0.5, 1], (value) => percent(value));
  for (const [one, css] of [[even, "even"], [made, "path"]]) {
    let left = one.order.amount;
    const points = [[chart.x(one.order.start), chart.y(1)]];
    for (const fill of one.steps.flatMap((step) => step.fills)) {
      points.push([chart.x(fill.tick), chart.y(left / one.order.amount)]);
      left -= fill.amount;
      points.push([chart.end(fill.tick), chart.y(left / one.order.amount)]);
    }
    chart.line(points, css);
  }
  const told = made.steps.map((step) => `${data.times.start[step.tick]} ${percent(step.before / made.order.amount)}`);
  chart.show(`Share of the amount that is left before each decision: ${told.join(", ")}; an even schedule is dashed.`);
}

function tableOf(player, made) {
  const { data } = player, { shares, head } = data, amount = made.order.amount;
  const isChance = head.kind === "chance", isNumber = head.kind === "number", told = made.steps[0].expected !== null;
  const asked = data.acts === "pace" ? "asked, × even pace" : "asked, of what is left";
  const titles = ["from", "left before", ...(isNumber ? [asked] : shares.map((share) => percent(share))), "traded", "at"];
  if (told) titles.push("expected cost of waiting, bp");
  const rows = made.steps.map((step) => {
    const cells = shares.map((_, at) => {
      const words = !step.allowed[at] ? "" : isChance ? percent(step.chances[at]) : number(step.scores[at]);
      const cell = element("td", at === step.action ? { class: "chosen" } : {}, words);
      if (isChance && step.allowed[at]) cell.style.setProperty("--chance", `${100 * step.chances[at]}%`);
      return cell;
    });
    const filled = step.fills.reduce((sum, fill) => sum + fill.amount, 0);
    const value = step.fills.reduce((sum, fill) => sum + fill.amount * fill.price, 0);
    const plain = [data.times.start[step.tick], percent(step.before / amount)];
    if (isNumber) plain.push(data.acts === "pace" ? number(step.action) : percent(step.action));
    const after = [percent(filled / amount), filled > 0 ? number(value / filled) : ""];
    const canWait = player.engine.stop[step.tick] < made.order.end;
    if (told) after.push(canWait ? signed(step.expected[0]) : "");
    const td = (text) => element("td", {}, text);
    return element("tr", {}, ...plain.map(td), ...cells, ...after.map(td));
  });
  const header = element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)));
  return [element("thead", {}, header), element("tbody", {}, ...rows)];
}

function begin() {
  const raw = document.getElementById("player-data");
  if (!raw) return;
  const player = new Player(JSON.parse(raw.textContent)), { data } = player;
  const $ = (id) => document.getElementById(`play-${id}`);
  const { pa } = data.recorded;
  const ranked = [...pa.keys()].filter((at) => Number.isFinite(pa[at])).sort((a, b) => pa[a] - pa[b]);
  const named = { typical: ranked[ranked.length >> 1], best: ranked[ranked.length - 1], worst: ranked[0] };
  const bySize = data.rules.volume_limit !== null || data.rules.lot > 0 || data.rules.min_fee > 0;
  const settings = data.dial.length;
  let own = player.order(0), width = 640;

  // Asked for when the window changes and not at each redraw, since the answer lays out the whole page.
  function measure() {
    width = Math.max(280, Math.round($("prices").clientWidth) || 640);
  }

  function aversion() {
    if (!settings) return 0;
    const at = Number($("dial").value), low = Math.min(Math.floor(at), settings - 2);
    return data.dial[low] + (at - low) * (data.dial[low + 1] - data.dial[low]);
  }

  function asked() {
    const side = document.querySelector("input[name=play-side]:checked").value === "buy" ? 1 : -1;
    const factor = 10 ** Number($("amount").value);
    return { ...own, side, amount: own.amount * factor, start: Number($("start").value), aversion: aversion(), factor };
  }

  function choose(at) {
    own = player.order(at);
    $("order").value = at;
    $("amount").value = 0;
    $("start").max = own.end - 1;
    $("start").value = own.start;
    $(own.side > 0 ? "buy" : "sell").checked = true;
    if (settings) {
      const above = Math.max(1, data.dial.findIndex((one) => one >= own.aversion));
      $("dial").value = above - 1 + (own.aversion - data.dial[above - 1]) / (data.dial[above] - data.dial[above - 1]);
    }
    redraw();
  }

  function redraw() {
    const began = performance.now(), order = asked(), made = player.play(order), even = player.even(order);
    const changed = [
      order.factor !== 1 && "amount", order.start !== own.start && "start", order.side !== own.side && "side",
      Math.abs(order.aversion - own.aversion) > 1e-9 * Math.abs(own.aversion) && settings && "risk aversion",
    ].filter(Boolean);
    const what = order.side > 0 ? "Buys" : "Sells", from = data.times.start[order.start], until = data.times.end[order.end - 1];
    $("order-out").textContent = `${own.number + 1} of ${player.count}: ${own.id}`;
    $("amount-out").textContent = `${number(order.amount, 0)} shares, ${number(order.factor)} × the order's`;
    $("start-out").textContent = from;
    if (settings) $("dial-out").textContent = `${Number(order.aversion.toPrecision(3))} per bp`;
    for (const id of ["order", "amount", "start", "dial"]) $(id)?.setAttribute("aria-valuetext", $(`${id}-out`).textContent);
    $("pa").textContent = `${signed(made.pa)} bp`;
    $("over").textContent = `${signed(made.pa - even.pa)} bp`;
    $("recorded").textContent = changed.length ? "–" : `${signed(pa[own.number])} bp`;
    $("told").textContent =
      `${what} ${number(order.amount, 0)} ${own.instrument} on ${own.date}, ${from} to ${until}: ` +
      `${percent(made.ffr)} filled in ${made.steps.length} ${made.steps.length === 1 ? "decision" : "decisions"}. ` +
      (changed.length ? `Changed: ${changed.join(", ")}; the backtest has no such order.` : "As in the backtest.");
    drawPrices($("prices"), width, player, made);
    drawLeft($("left"), width, player, made, even);
    $("steps").replaceChildren(...tableOf(player, made));
    return performance.now() - began;
  }

  const rounding = (value) => (value ? value.toExponential(0) : "0");

  // In parts, so that the page goes on answering.
  async function checkAll() {
    const found = { orders: 0, differ: 0, apart: 0, bp: 0 };
    for (let first = 0; first < player.count; first += 50) {
      const part = player.check(first, Math.min(first + 50, player.count));
      found.orders += part.orders;
      found.differ += part.differ;
      found.apart = Math.max(found.apart, part.apart);
      found.bp = Math.max(found.bp, part.bp);
      $("checked").textContent = `${number(found.orders, 0)} of ${number(player.count, 0)} …`;
      await new Promise((done) => setTimeout(done));
    }
    $("checked").textContent =
      `${number(found.orders - found.differ, 0)} of ${number(found.orders, 0)} orders trade here as in the backtest; ` +
      `what is left after a step differs by ${rounding(found.apart)} of the amount at most, the PA by ${rounding(found.bp)} bp.`;
    return found;
  }

  $("order").max = player.count - 1;
  $("order").addEventListener("input", () => choose(Number($("order").value)));
  for (const id of ["amount", "start", "buy", "sell", "dial"]) $(id)?.addEventListener("input", redraw);
  for (const [name, at] of Object.entries(named)) $(name).addEventListener("click", () => choose(at));
  $("again").addEventListener("click", () => choose(own.number));
  $("check").addEventListener("click", checkAll);
  window.addEventListener("resize", () => {
    measure();
    redraw();
  });
  $("size-note").hidden = bySize;
  $("controls").hidden = false;
  measure();
  choose(named.typical ?? 0);
  window.rlwbPlayer = { player, choose, redraw, checkAll };
}

begin();
