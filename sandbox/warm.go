package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// WarmNote and ColdNote are the notes of placements by [Warm] or a [Gateway] (Place.Note, Capsule.Note): whether a warm
// slot of the template was promised on the node. A sandbox with the WarmNote has booted cold all the same if the node's
// report was wrong or another sandbox took the slot first.
const (
	WarmNote = "warm"
	ColdNote = "cold"
)

// Warm is the navigator for sandboxes: capsules that start from a template (Spec.Start), of which some nodes
// have slots warm. It puts each on the node that is best by [WarmFirst], so on one that can start it warm
// if there is any, of those that
//
//   - support the template and have all of the volumes; for a fork, the parent's node, or with CrossHost any other;
//   - have a report that is not stale, and a lease that has not run out;
//   - have a free slot, in the ledger (orbit.Slots) and by their own report, and room for what is reserved;
//   - meet what the spec requires of labels, devices and company. What it prefers has no say.
//
// A fork that has lost its node is placed beside its parent again, waits with [ErrNoParent] while that is
// pending, and goes where a plain capsule would, once that has been released or the ledger has no record of it:
// what it had in memory is gone, so it boots from its template. A fork that was never placed needs a parent
// that runs.
//
// Equal nodes go by load, then by a hash of the node with the Seed, or with Seed 0 by id. A placement's note
// says whether a warm slot was promised ([WarmNote], [ColdNote]). What is not placed has a [*WarmNoFit].
//
// What is given away is debited at once: within a plan by the navigator itself, and by
// [telemetry.Board.Claim] for all readers of the board, until the node reports again. Claims whose
// placement was not committed are taken back in the next plan. A node without a word of telemetry (an engine
// without any) is taken at the ledger's word: nothing is warm, every template is supported, and no volume is
// there.
//
// A choice costs a logarithm of the number of nodes, and what has changed since the class was last asked for; a
// refusal looks at all nodes once, until something changes. Members of gangs are not placed. It belongs to one
// engine and is not safe for concurrent use.
type Warm struct {
	// Board is the one that the engine's views are joined with: claims are made there, and if it has Leases, a
	// node gets work only under a live term, on which every placement bets. Nil: no claims and no terms.
	Board *telemetry.Board
	// Modules whose work it claims, of any class but GangClass. Nil: all latency-sensitive and best-effort
	// work, as Services does, so that one of the two must be told its modules or be left out.
	Modules []string
	// AllowStale gives work to nodes with a stale report too. The score's -1000 alone is against them then:
	// with fewer than ten warm slots such a node comes after all fresh ones, with more it counts as one that
	// can start warm.
	AllowStale bool
	// Seed decides between equal nodes. Give each of several navigators another one.
	Seed uint64

	loads  loads
	claims []boardClaim
}

// boardClaim is a claim on the board, and the placement that it was made for.
type boardClaim struct {
	claim   telemetry.Claim
	capsule orbit.CapsuleID
	node    orbit.NodeID
	view    orbit.Revision
}

// Claims reports whether the module is one of Modules; without any, whether the class is LatencySensitive or
// BestEffort. It never claims GangClass.
func (w *Warm) Claims(module string, class orbit.AppClass) bool {
	if w.Modules == nil {
		return class == orbit.LatencySensitive || class == orbit.BestEffort
	}
	return class < orbit.GangClass && slices.Contains(w.Modules, module)
}

// Plan places capsule by capsule, in the order given. When ctx ends it returns what it has so far, and the
// context's error. Its notes count: "warm" and "cold" placed, claims "unclaimed", and of what was refused
// "allStale", "noSlot", "noVolume", "noTemplate", "noParent" and "noNode".
func (w *Warm) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	w.loads.seed, w.loads.allowStale = w.Seed, w.AllowStale
	w.loads.sync(view)
	p := warmPlan{Warm: w, refused: map[error]int{}, why: map[warmWant]error{}, unclaimed: w.reviewClaims(view.State())}
	if w.Board != nil {
		p.leases = w.Board.Leases
	}
	p.plan.Proposals = make([]orbit.Proposal, 0, len(pending))
	for _, c := range pending {
		if err := ctx.Err(); err != nil {
			return p.finish(), err
		}
		p.add(c)
	}
	return p.finish(), nil
}

// reviewClaims looks at what has become of the claims of the last plan. It takes back those whose capsule has not
// been placed there since, and forgets the others: the node's next report ends them.
func (w *Warm) reviewClaims(state *orbit.State) (unclaimed int) {
	for _, k := range w.claims {
		c := state.Capsule(k.capsule)
		if c == nil || c.Node == k.node || c.Released() && c.PlacedAt > k.view {
			continue
		}
		w.Board.Unclaim(k.claim)
		unclaimed++
	}
	clear(w.claims)
	w.claims = w.claims[:0]
	return unclaimed
}

// warmWant is what all capsules have in common of which the same is said: their class, and whether they were
// placed before.
type warmWant struct {
	spec  *orbit.Spec
	again bool
}

// warmPlan is one Plan.
type warmPlan struct {
	*Warm
	plan   orbit.Plan
	leases *lease.Keeper
	// What was said of a class that fits nowhere: within one plan room only shrinks.
	why                   map[warmWant]error
	warm, cold, unclaimed int
	refused               map[error]int // by kind
}

// add places a capsule, or notes why not.
func (p *warmPlan) add(c *orbit.Capsule) {
	if c.Gang != "" {
		p.plan.Unplaced = append(p.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf(
			"capsule %q is a member of gang %q, which is placed whole: by a navigator of gangs, for specs of the class Gang", c.ID, c.Gang)})
		return
	}
	want := warmWant{c.Spec, c.PlacedAt > 0}
	why := p.why[want]
	if why == nil || c.Nomination.Lives() { // there may be room that is nominated for this one alone
		p.loads.draft.Ask(c)
		choice, err := p.loads.best(&ask{spec: c.Spec, again: want.again, leases: p.leases})
		if err == nil {
			err = p.place(c, &choice)
		}
		if err == nil {
			return
		}
		p.loads.draft.Ask(nil)
		why, p.why[want] = err, err
	}
	var e *WarmNoFit
	if errors.As(why, &e) {
		p.refused[e.Kind]++
	}
	p.plan.Unplaced = append(p.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
}

// place gives a choice away and proposes it.
func (p *warmPlan) place(c *orbit.Capsule, on *choice) error {
	d, err := p.loads.take(c, on)
	if err != nil {
		return err
	}
	if d.warm {
		p.warm++
	} else {
		p.cold++
	}
	if p.Board != nil {
		claim := p.Board.Claim(d.node, c.Spec.Start.Template)
		p.claims = append(p.claims, boardClaim{claim, c.ID, d.node, p.loads.state.Revision()})
	}
	p.plan.Proposals = append(p.plan.Proposals, p.loads.propose(p.leases, d.node))
	return nil
}

// finish adds the notes.
func (p *warmPlan) finish() orbit.Plan {
	p.plan.Notes = []slog.Attr{
		slog.Int("warm", p.warm), slog.Int("cold", p.cold), slog.Int("unclaimed", p.unclaimed),
		slog.Int("allStale", p.refused[ErrAllStale]), slog.Int("noSlot", p.refused[ErrNoSlot]),
		slog.Int("noVolume", p.refused[ErrNoVolume]), slog.Int("noTemplate", p.refused[ErrNoTemplate]),
		slog.Int("noParent", p.refused[ErrNoParent]), slog.Int("noNode", p.refused[ErrNoNode]),
	}
	return p.plan
}
