// What a chosen instruction or idle interval is, why it waited and for whom, and where in the model it comes from.

function insnName(role, i) {
  const kind = role.kinds[role.kind[i]], m = role.microbatch[i];
  return role.plan.ops[kind.op] + (kind.action ? ` of ${kind.action}${m >= 0 ? m : ""}` : "");
}

function insnLink(timeline, role, i) {
  return element("button", { onclick: () => timeline.reveal(role, i) }, `${insnName(role, i)}, instruction ${i}`);
}

function list(pairs) {
  return element("dl", {}, ...pairs.filter(p => p && p[1] !== undefined && p[1] !== "").flatMap(([what, is]) =>
    [element("dt", {}, what), element("dd", {}, ...[is].flat())]));
}

function idlePairs(timeline, role, d) {
  const why = ["the first forward has not run yet", "its last action has run",
    "a transfer was running that it needs", "what it needs was not ready"][d.cause];
  return [["idle before", `${seconds(d.end - d.start)}: ${role.plan.causes[d.cause]}, since ${why}`],
    d.on >= 0 && ["waited for", insnLink(timeline, role, d.on)],
    d.who !== role.number && ["in the end for", rankName(role.plan.roles[d.who])]];
}

function insnPairs(timeline, role, i) {
  const kind = role.kinds[role.kind[i]], plan = role.plan, took = role.end[i] - role.start[i];
  const transfer = kind.transfer >= 0 && role.transfers[kind.transfer];
  const chunk = role.stages.indexOf(kind.stage);
  return [
    ["instruction", `${plan.ops[kind.op]}, number ${i} of rank ${role.number}'s program, on queue ${plan.queues[kind.queue]}`],
    ["runs", `${seconds(role.start[i])} to ${seconds(role.end[i])}, for ${seconds(took)}`],
    kind.action && ["action", (ACTIONS[kind.action] || kind.action) +
      (role.microbatch[i] >= 0 ? ` of microbatch ${role.microbatch[i]}` : "") + (kind.again ? ", a recomputation" : "")],
    kind.stage >= 0 && ["stage", `${kind.stage}` + (role.stages.length > 1 ? `, the rank's chunk ${chunk + 1} of ${role.stages.length}` : "")],
    kind.layer >= 0 && ["layer", `${kind.layer}`],
    kind.line > 0 && ["model.llm", element("code", {}, `${kind.line}: ${(plan.lines[kind.line - 1] || "").trim()}`)],
    transfer && ["moves", `${bytes(kind.bytes)} with ${transfer.group} (${transfer.members} ranks, ${transfer.tier}), ` +
      rate(kind.bytes, took)],
    role.after[i] >= 0 && ["comes after", insnLink(timeline, role, role.after[i])],
  ];
}

function showDetail(timeline, what) {
  const box = document.getElementById("detail");
  box.replaceChildren();
  if (!what) return;
  const { role } = what.lane;
  const pairs = [["rank", rankName(role)]];
  if (what.insn !== undefined) pairs.push(...insnPairs(timeline, role, what.insn));
  if (what.idle) pairs.push(...idlePairs(timeline, role, what.idle));
  box.append(list(pairs));
}
