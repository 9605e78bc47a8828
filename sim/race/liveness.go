package race

import (
	"cmp"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
)

// Liveness draws small worlds, one for each seed. It asks of each world the question that no test of a single pass can
// ask: when everything has come to rest, is a capsule or a gang still pending although it fits?
//
//	events ─ nodes join, drain, shrink, move, leave; work comes, ends, moves ─┐
//	engines ─ all ready navigators and one of the world's own ─────────────────┼─► ledger ─► rest ─► brute force
//	faults ─ refusals, lost answers, silent nodes, navigators that fail ──────┘
//
// [Liveness.Race] says what a world has in it, and when it fails. Run the worlds in a testing/synctest bubble, because the engines wait by
// package time. A Liveness is not changed by use, and may be used from several goroutines (bubbles) at once.
type Liveness struct {
	// Ledger makes the empty ledger of a world. Nil: an [orbit.MemoryLedger], in some worlds with a short
	// history. Set it to try another ledger.
	Ledger func() orbit.Ledger
	// Wrap, if set, is given every engine's navigator and returns the navigator that the engine runs. Set it to try a
	// changed navigator, which must keep the documented rule of the given one.
	Wrap func(engine string, navigator orbit.Navigator) orbit.Navigator
	// Within is the time that engines have to come to rest after the last event and the last fault; default
	// 5 s. It must be well below 30 s, or a class that was put aside by mistake comes back before it is noticed.
	Within time.Duration
	// Command runs a seed again, with %d for the seed; it is printed with a failure.
	Command string
}

// Race is a [Scenario]: it draws the world of a seed.
//
// A world has a few nodes, up to six engines, and some tens of events, in parts of about a second. Among the work are gangs
// with rules of company and extras, whose members end, are lost and come back, work that fits nowhere, and nodes on which
// each start fails; answers to proposals may come late. In two fifths of the worlds most work names queues of one cohort, whose
// quotas change, and some navigators are in a nav.Fair; what then waits must have too little quota. After each part the
// world rests: faults end, nothing happens except heartbeats, and the engines have the time Within to come to rest.
// That is far shorter than the 30 s for which an engine puts a class aside by default ([orbit.Engine] ParkFor), so a
// class that was put aside by mistake is still pending then. Brute force, which shares no code with the engines and
// navigators except the matching of labels and taints, checks every node for every pending capsule, by the rule that
// the capsule's navigator documents. For gangs it searches exhaustively. The world fails if it breaks a rule of every
// race, or
//
//   - a capsule or a gang is pending that fits beside the room nominated for work that outranks it ("left"),
//   - a hold is still there at the end of the rest, or a proposal other than a nomination was sent in its last quarter
//     ("restless"),
//   - a plan panicked without a drawn fault ("panic"),
//   - a plan made at rest was refused as infeasible, which is its navigator's mistake ("infeasible"),
//   - a plan held what is malformed or not for a plan ([orbit.State.JudgePlan]) ("invalid"),
//   - the board of reports refuses a report that it must accept ("report").
func (l *Liveness) Race(seed uint64) *Config {
	d := drawLive(seed)
	d.within = cmp.Or(l.Within, 5*time.Second)
	r := &Config{Ledger: l.Ledger, Faults: d.faults, Events: d.events, Check: 16, Sleep: time.Sleep, Command: l.Command, live: &d}
	if r.Ledger == nil {
		r.Ledger = func() orbit.Ledger {
			return &orbit.MemoryLedger{Bounds: orbit.Limits{History: d.history, NominatedShare: 100}}
		}
	}
	r.Starts, r.Stops = d.starts, d.stops
	if d.telemetry {
		r.Heartbeat = heartbeatLive
	}
	for i := range d.engines {
		e := &d.engines[i]
		r.Schedulers = append(r.Schedulers, Scheduler{
			Name: e.name, MaxPlan: e.maxPlan, Together: -1, ParkFor: 30 * time.Second, planTimeout: planTimeoutLive,
			Backoff: orbit.Backoff{Initial: 5 * time.Millisecond, Max: 250 * time.Millisecond}, live: e,
			make: func(c *course) orbit.Navigator {
				n := c.play.navigator(e, i)
				if l.Wrap != nil {
					n = l.Wrap(e.name, n)
				}
				return &assignedOnly{n, e.assigned}
			},
		})
	}
	return r
}

const (
	// heartbeatLive is how often nodes report.
	heartbeatLive = 400 * time.Millisecond
	// planTimeoutLive is the deadline of a plan. A plan with the fault faultOverruns takes half as long again.
	planTimeoutLive = 200 * time.Millisecond
)

// errMadeUp is the error of a plan or a report that fails because of a drawn fault.
var errMadeUp = errors.New("a failure that the world has made up")

// assignedOnly is a navigator that, if assigned is set, claims no work and takes only what is assigned to its engine.
type assignedOnly struct {
	orbit.Navigator
	assigned bool
}

// Claims implements [orbit.Navigator].
func (n *assignedOnly) Claims(module string, class orbit.AppClass) bool {
	return !n.assigned && n.Navigator.Claims(module, class)
}
