// Package promorbit shows a ledger, its engines and pools of claims as Prometheus metrics. All names begin with orbit_.
//
//	orbit.Ledger ──── a snapshot and the changes since, at each scrape ───► Ledger  ─┐
//	orbit.Engine ──── OnRound, after each pass ───────────────────────────► Engines ─┼─► prometheus.Registry ─► /metrics
//	claim.Pool ────── Status, at each scrape ─────────────────────────────► Pools   ─┘
//
// [Ledger], [Engines] and [Pools] are collectors, to be registered like any other:
//
//	engines := &promorbit.Engines{}
//	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: engines.Round}
//	engines.Engines = []*orbit.Engine{engine}
//	prometheus.MustRegister(engines, &promorbit.Ledger{Ledger: ledger})
//
// A process with two ledgers registers a Ledger for each, and tells them apart by a label of its own
// (prometheus.WrapRegistererWith).
//
// # Cost
//
// A scrape of a Ledger looks at each node, budget and nomination once, and at the changes since the last scrape. It looks at
// all capsules only at the first scrape, and again when the ledger's history ([orbit.Limits].History) does not reach back to
// the last one. It takes no lock of the ledger for longer than a snapshot does. What is pending is kept in memory: some 150
// bytes for each pending capsule.
//
// An engine without an OnRound spends no time on metrics.
//
// # Cardinality
//
// Labels whose values come from the importer, which are engine, rival, note, budget, group and the labels of pools,
// have at most as many values as the field Names says. All further values are summed up under "other". All other labels
// have values that this package lists.
package promorbit
