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

// Warm is the navigator for sandboxes: capsules that start from a template (Spec.Start), of which some nodes keep warm
// slots. It puts each capsule on the node that is best by [WarmFirst]: one that can start it warm, if there is any. A
// node must
//
//   - support the template and have all of the volumes; for a fork, be the parent's node, or with CrossHost any other;
//   - have a report that is not stale, and a lease that has not run out;
//   - have a free slot, in the ledger (orbit.Slots) and by its own report, and room for the reservation;
//   - meet the spec's requirements on labels, devices and company. Preferences are ignored.
//
// [Warm.Plan] says how forks and equal nodes are treated. A Warm belongs to one engine and is not safe for concurrent use.
type Warm struct {
	// Board is the board with which the engine's views are joined. Claims are made on it. If it has Leases, a node gets
	// work only under a live term, on which every placement bets. Nil: no claims and no terms.
	Board *telemetry.Board
	// Modules are the modules whose work the navigator claims, of any class but GangClass. Nil: it claims all
	// latency-sensitive and best-effort work, as Services does, so one of the two needs Modules or has to be left out.
	Modules []string
	// AllowStale gives work to nodes with a stale report too. Only the score's -1000 then counts against them: such a
	// node with fewer than ten warm slots comes after all fresh ones, and one with more counts as one that can start
	// warm.
	AllowStale bool
	// Seed decides between equal nodes. Give each of several navigators a different one.
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

// Plan places capsule by capsule, in the order given. If ctx ends it returns the plan so far, and the context's error.
// Its notes are counts: "warm" and "cold" (placements), "unclaimed" (claims taken back), and by reason of refusal
// "allStale", "noSlot", "noVolume", "noTemplate", "noParent" and "noNode".
//
// A fork that has lost its node is placed beside its parent again. It waits with [ErrNoParent] while the parent is
// pending. Once the parent has been released, or the ledger has no record of it, the fork is placed like a plain
// capsule: its memory is gone, so it boots from its template. A fork that was never placed needs a parent that runs.
//
// Equal nodes are ordered by load, then by a hash of the node with the Seed, or with Seed 0 by id. A placement's note
// says whether a warm slot was promised ([WarmNote], [ColdNote]). For a capsule that is not placed the reason is a
// [*WarmNoFit].
//
// Each choice is debited at once: within a plan by the navigator itself, and by [telemetry.Board.Claim] for all readers
// of the board, until the node reports again. Claims whose placement was not committed are taken back in the next plan.
// Without telemetry (an engine that has none), the ledger alone decides: nothing is warm, every template is supported,
// and no node has a volume.
//
// A choice costs the logarithm of the number of nodes, and a look at each change since the class was last asked for. A
// refusal looks at all nodes once, until something changes. Members of gangs are not placed.
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

// reviewClaims takes back the last plan's claims whose capsule was not placed on the claimed node since, and returns
// how many. It forgets the others, because the node's next report ends them.
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

// warmWant is the key by which a plan caches reasons: capsules with the same spec that all were, or all were not,
// placed before. Rules is the draft's version of the rules of company, 0 if none concerns the spec, because what the plan
// places may open nodes by these.
type warmWant struct {
	spec  *orbit.Spec
	again bool
	rules uint64
}

// warmPlan is the state of one call of Plan.
type warmPlan struct {
	*Warm
	plan   orbit.Plan
	leases *lease.Keeper
	// The reasons for classes that fit nowhere; within a plan they hold while the rules do, because room only shrinks.
	why                   map[warmWant]error
	warm, cold, unclaimed int
	refused               map[error]int // by kind
}

// add places a capsule, or records why it cannot.
func (p *warmPlan) add(c *orbit.Capsule) {
	if c.Gang() != "" {
		p.plan.Unplaced = append(p.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf(
			"capsule %q is a member of gang %q, and its spec has the class %v: only specs of the class Gang are placed as gangs; submit the gang with Spec.Class orbit.GangClass", c.ID, c.Gang(), c.Spec.Class)})
		return
	}
	_, rules := p.loads.draft.RuleLevels(c.Spec)
	want := warmWant{c.Spec, c.PlacedAt > 0, rules}
	why := p.why[want]
	if why == nil || c.Nomination().Lives() { // room may be nominated for this capsule alone
		p.loads.draft.LookAs(c)
		choice, err := p.loads.best(&ask{spec: c.Spec, again: want.again, leases: p.leases})
		if err == nil {
			err = p.place(c, &choice)
		}
		if err == nil {
			return
		}
		p.loads.draft.LookAs(nil)
		why, p.why[want] = err, err
	}
	var e *WarmNoFit
	if errors.As(why, &e) {
		p.refused[e.Kind]++
	}
	p.plan.Unplaced = append(p.plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
}

// place debits a choice and proposes the placement.
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
