package nav

import "github.com/orbitsched/orbit"

// Default returns a population that schedules every class of work on a ledger. Its engines have the names that
// [orbit.Submit].Owner may say:
//
//	services  latency-sensitive and best-effort capsules: Patient around Anchor around Services
//	batch     batch capsules: Patient around Batch
//	gangs     gangs: Patient around Gang
//
// Because all are patient, nothing waits for ever beside smaller work that keeps coming. Because the population is Strict, an engine
// plans no work while another has work of higher priority to plan. No work is moved or evicted, unless it has borrowed nominated
// room.
//
// Each function in wrap is called with the navigator of each engine and returns the one that the engine gets instead; the first
// wraps innermost. To evict work of lower priority for what fits nowhere, and to move work out of the way as well:
//
//	population := nav.Default(ledger, nav.Evicting)
//	population := nav.Default(ledger, nav.Moving)
//
// To let queues share fairly, and take back what others have borrowed of them:
//
//	population := nav.Default(ledger, nav.Evicting, nav.Fairly)
//
// The fields of the engines and of the population may be changed before Run. An engine of your own for some modules stands
// before these: population.Engines = slices.Insert(population.Engines, 0, own). What is in wrap does not wrap it: to be patient and to
// evict, its Navigator is Evicting(&Patient{Navigator: own}).
func Default(ledger orbit.Ledger, wrap ...func(orbit.Navigator) orbit.Navigator) *orbit.Population {
	engine := func(name string, n orbit.Navigator) *orbit.Engine {
		n = &Patient{Navigator: n}
		for _, w := range wrap {
			n = w(n)
		}
		return &orbit.Engine{Name: name, Ledger: ledger, Navigator: n}
	}
	return &orbit.Population{Strict: true, Engines: []*orbit.Engine{
		engine("services", &Anchor{Navigator: &Services{}}),
		engine("batch", &Batch{}),
		engine("gangs", &Gang{}),
	}}
}

// Evicting wraps a navigator with a [Preempting] that evicts work of lower priority and moves none. It is for [Default].
func Evicting(n orbit.Navigator) orbit.Navigator { return &Preempting{Navigator: n, Moves: -1} }

// Moving wraps a navigator with a [Preempting] that has no limits, for [Default] in place of [Evicting]. For work of any priority it
// first moves others to nodes that take them, if they are movable or a budget covers them ([orbit.Budget]): they restart
// there. Only where no moves help does it evict work of lower priority.
func Moving(n orbit.Navigator) orbit.Navigator { return &Preempting{Navigator: n} }
