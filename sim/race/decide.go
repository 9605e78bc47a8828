package race

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// stepKind is the kind of the step that an actor is about to take. It decides which faults are possible.
type stepKind int

const (
	stepInside   stepKind = iota // within a call of a ledger or a navigator
	stepPass                     // begins a pass, plans, or rests
	stepRead                     // asks the ledger for changes or to wait
	stepSnapshot                 // asks the ledger for a snapshot
	stepPropose                  // sends a proposal
	stepHold                     // sends a proposal with a hold
	stepAnswer                   // hears the answer to a proposal
	stepHear                     // asks for reports
	stepPlan                     // plans
	stepReport                   // a node reports
	stepWorld                    // anything else of the world
)

// The faults, and the word for a delay, as they are written in decisions.
const (
	faultCrash       = "crash"
	faultConflict    = "conflict"
	faultUnavailable = "unavailable"
	faultUnknown     = "unknown"
	faultDropped     = "dropped"
	faultLate        = "late"
	faultSlow        = "slow"
	faultStale       = "stale"
	faultFails       = "fails"
	faultPanics      = "panics"
	faultOverruns    = "overruns"
	delayed          = "delay"
)

// fault is a fault of a step, with its duration if it has one.
type fault struct {
	what string
	long time.Duration
}

// decider decides how long each step waits and which fault it has. It draws from a seed, or follows a list. A decision
// belongs to an actor and the number of its step, so that removing one decision does not move the others to other
// steps.
type decider struct {
	seed   uint64
	faults Faults
	// list, if not nil, decides instead of the seed.
	list map[string]fault
	// made has all decisions with an effect, in the order in which they were made.
	made []string
}

// replayed reads a list of decisions.
func replayed(decisions []string) (*decider, error) {
	d := &decider{list: map[string]fault{}}
	for _, text := range decisions {
		words := strings.Fields(text)
		var f fault
		err := error(nil)
		if len(words) == 3 {
			f.long, err = time.ParseDuration(words[2])
		}
		if len(words) < 2 || len(words) > 3 || err != nil {
			return nil, fmt.Errorf("race: %w: decision %q; want one like \"a/12 delay 40ms\" or \"b/3 conflict\"", orbit.ErrInvalid, text)
		}
		f.what = words[1]
		d.list[key(words[0], f.what == delayed)] = f
	}
	return d, nil
}

// key returns the key of a decision in the list. A step may have a delay and a fault, so these have different keys.
func key(step string, delay bool) string {
	if delay {
		return step + " " + delayed
	}
	return step
}

// decide returns how long a step waits, and its fault. Calm says that faults have ended. Burst, if not empty, is the
// fault that every proposal has at present.
func (d *decider) decide(actor string, n int, kind stepKind, calm bool, burst string) (time.Duration, fault) {
	step := actor + "/" + strconv.Itoa(n)
	if d.list != nil {
		wait, f := d.list[key(step, true)], d.list[step]
		d.note(step, wait)
		d.note(step, f)
		return wait.long, f
	}
	if d.faults == (Faults{}) && burst == "" {
		return 0, fault{}
	}
	draw := newDraw(d.seed, actor, n)
	wait, f := fault{delayed, draw.length(d.faults.Longest)}, fault{}
	if !draw.chance(d.faults.Delay) {
		wait = fault{}
	}
	switch {
	case burst != "" && (kind == stepPropose || kind == stepHold):
		f = fault{what: burst}
	case !calm:
		f = d.faults.draw(&draw, kind)
	}
	d.note(step, wait)
	d.note(step, f)
	return wait.long, f
}

// note adds a decision to made, if it has an effect.
func (d *decider) note(step string, f fault) {
	switch {
	case f.what == "":
	case f.long == 0:
		d.made = append(d.made, step+" "+f.what)
	default:
		d.made = append(d.made, step+" "+f.what+" "+f.long.String())
	}
}

// draw draws the fault of a step.
func (f *Faults) draw(d *draws, kind stepKind) fault {
	type chance struct {
		what string
		p    float64
	}
	var chances []chance
	if kind != stepWorld && kind != stepReport {
		chances = append(chances, chance{faultCrash, f.Crash})
	}
	switch kind {
	case stepAnswer:
		chances = append(chances, chance{faultSlow, f.Slow})
	case stepHear:
		chances = append(chances, chance{faultUnavailable, f.Reports})
	case stepPlan:
		chances = append(chances, chance{faultFails, f.Plan / 3}, chance{faultPanics, f.Plan / 3}, chance{faultOverruns, f.Plan / 3})
	case stepHold, stepPropose:
		if kind == stepHold {
			chances = append(chances, chance{faultConflict, f.Holds})
		}
		chances = append(chances, chance{faultConflict, f.Conflict}, chance{faultUnavailable, f.Unavailable},
			chance{faultUnknown, f.Unknown}, chance{faultDropped, f.Dropped}, chance{faultLate, f.Late})
	case stepRead:
		chances = append(chances, chance{faultUnavailable, f.Unavailable})
	case stepSnapshot:
		chances = append(chances, chance{faultUnavailable, f.Unavailable}, chance{faultStale, f.Stale})
	case stepReport:
		chances = append(chances, chance{faultDropped, f.Dropped}, chance{faultLate, f.Late})
	}
	u := d.uniform()
	for _, c := range chances {
		if u -= c.p; u < 0 {
			out := fault{what: c.what}
			switch c.what {
			case faultCrash:
				out.long = d.length(0)
			case faultLate:
				out.long = d.length(f.Longest)
			case faultSlow:
				out.long = d.length(time.Second)
			}
			return out
		}
	}
	return fault{}
}

// draws are random numbers for one step, by splitmix64.
type draws struct{ x uint64 }

// newDraw mixes a seed, an actor and a step.
func newDraw(seed uint64, actor string, n int) draws {
	d := draws{seed}
	for i := range len(actor) {
		d.x = d.next() ^ uint64(actor[i])
	}
	d.x = d.next() ^ uint64(n)
	return draws{d.next()}
}

func (d *draws) next() uint64 {
	d.x += 0x9e3779b97f4a7c15
	z := d.x
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform returns a number from 0 up to 1.
func (d *draws) uniform() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *draws) chance(p float64) bool { return d.uniform() < p }

// length returns a power of two in milliseconds, from 1 ms to about longest, or to 4,096 ms if longest is 0. All are
// equally likely.
func (d *draws) length(longest time.Duration) time.Duration {
	n := uint64(bits.Len64(uint64(longest / time.Millisecond)))
	if n == 0 {
		n = 13
	}
	return time.Millisecond << (d.next() % n)
}
