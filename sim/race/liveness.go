package race

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Liveness plays small worlds, one for each seed, and asks of each the question that no test of a single pass
// can ask: when everything has come to rest, is anything left pending that fits?
//
//	events ─ nodes join, drain, shrink, move, leave; work comes, ends, moves ─┐
//	engines ─ all ready navigators and one of the world's own, in a Population ┼─► ledger ─► rest ─► brute force
//	faults ─ refusals, lost answers, silent nodes, navigators that fail ──────┘
//
// A world has a few nodes, up to five engines, and some tens of events, in parts of a second or so. After each
// part it rests: faults end, nothing happens but heartbeats, and the engines have the time Within. That is far
// shorter than the 30 s for which an engine puts a class aside by default ([orbit.Engine] ParkFor), so what was
// put aside by mistake is still pending then. Brute force, which shares nothing with the engines and navigators
// but how a label is matched, looks at every node for every pending capsule, by the rule that the capsule's
// navigator documents; a gang is seated by exhaustive search. The world fails if
//
//   - a capsule or a gang is pending that fits, beside what is nominated for those that outrank it ("left"),
//   - holds are still there, or proposals are still sent in the last quarter of the rest, but for nominations ("restless"),
//   - a plan panicked that was not made to ("panic"),
//   - a plan made at rest was refused as infeasible, which is its navigator's mistake ("infeasible"),
//   - the state does not add up ("verify"), the engines refuse to run ("run"), or the ledger or the board of
//     reports refuses what it may not ("ledger", "report").
//
// Everything is drawn from the seed: who takes part, all events, all faults, and how long each call takes. No
// two actors ever move at the same instant, so that a seed plays the same history again. All waiting is by
// package time: play worlds in a testing/synctest bubble, where a world takes some milliseconds; outside of one
// it takes the seconds that it says it takes.
//
// A Liveness is not changed by playing, and may be used from several goroutines (bubbles) at once.
type Liveness struct {
	// Ledger makes the empty ledger of a world. Nil: an [orbit.MemoryLedger], in some worlds with a short
	// history. Set it to try another ledger.
	Ledger func() orbit.Ledger
	// Wrap, if set, is given every engine's navigator and returns the one that the engine runs. Set it to try a
	// changed navigator, which has to keep to the rule of the one that it is given.
	Wrap func(engine string, navigator orbit.Navigator) orbit.Navigator
	// Within is the time that engines have to come to rest after the last event and the last fault; default
	// 5 s. It must be well below 30 s to show what was put aside by mistake.
	Within time.Duration
	// Command runs a seed again, with %d for the seed; it is printed with a failure. Default: how to call Play.
	Command string
}

// Stall is a world in which the engines did not come to rest as they should.
type Stall struct {
	// Seed plays the world again.
	Seed uint64
	// Err says which rule was broken, and by what.
	Err error

	draft   liveDraft
	history []string
	how     string
}

// Error names the seed, the rule, and what is wrong.
func (s *Stall) Error() string { return fmt.Sprintf("liveness: seed %d: %v", s.Seed, s.Err) }

// Unwrap returns Err.
func (s *Stall) Unwrap() error { return s.Err }

// Rule returns the name of the rule that was broken, as in "left".
func (s *Stall) Rule() string { return ruleOf(s.Err) }

// Size returns how many engines and events the world of the stall has, which Hunt makes few.
func (s *Stall) Size() (engines, events int) { return len(s.draft.engines), len(s.draft.events) }

// Story tells what is wrong, how to play the world again, who took part, and all that happened.
func (s *Stall) Story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\nplay it again with: %s\n", s, s.how)
	for i := range s.draft.engines {
		fmt.Fprintf(&b, "engine %v\n", &s.draft.engines[i])
	}
	for _, line := range s.history {
		b.WriteString(line)
	}
	return b.String()
}

// Play plays the world of a seed, and returns nil if the engines come to rest and nothing is left that fits.
func (l *Liveness) Play(seed uint64) *Stall { return l.play(drawLive(seed)) }

// Hunt plays the worlds of seeds from first on, so many of them, until one fails, and returns that failure with
// a world made small: with fewer engines, events and faults, failing by the same rule. It returns nil if none
// fails.
func (l *Liveness) Hunt(first uint64, seeds int) *Stall {
	for i := range seeds {
		if s := l.Play(first + uint64(i)); s != nil {
			return l.Shrink(s)
		}
	}
	return nil
}

// Shrink returns the smallest world failing by the same rule that it finds in some hundred tries. The result
// keeps the seed, with which the whole world fails.
func (l *Liveness) Shrink(s *Stall) *Stall {
	left := liveTries
	try := func(d liveDraft) bool {
		if left--; left < 0 {
			return false
		}
		again := l.play(d)
		if again == nil || again.Rule() != s.Rule() {
			return false
		}
		s = again
		return true
	}
	for before := -1; before != len(s.draft.events) && left > 0; {
		before = len(s.draft.events)
		calm := s.draft
		calm.faults = liveFaults{}
		try(calm)
		for i := len(s.draft.engines) - 1; i >= 0 && len(s.draft.engines) > 1; i-- {
			d := s.draft
			d.engines = without(d.engines, i, i+1)
			try(d)
		}
		chunks(func() int { return len(s.draft.events) }, func(from, to int) bool {
			d := s.draft
			d.events = without(d.events, from, to)
			return try(d)
		})
	}
	return s
}

// liveTries is how many worlds shrinking one failure plays.
const liveTries = 600

// within is the time that engines have to come to rest.
func (l *Liveness) within() time.Duration { return cmp.Or(l.Within, 5*time.Second) }

// command says how to play a seed again.
func (l *Liveness) command(seed uint64) string {
	return command(cmp.Or(l.Command, "new(race.Liveness).Play(%d)"), seed)
}

// errMadeUp is what a navigator that is made to fail says.
var errMadeUp = errors.New("a failure that the world has made up")
