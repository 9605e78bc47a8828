package etcdledger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

var bg = context.Background()

// duel drives ledgers over one store and a ledger in memory side by side, and compares them after every step.
type duel struct {
	store   *store
	options Options
	ledgers []*Ledger
	// reloaded says that a ledger has read all records since it was first opened: then it does not know exactly when
	// capsules and ids were dropped.
	reloaded []bool
	memory   *orbit.MemoryLedger
	// revs has the store's revision for each of memory's.
	revs  map[orbit.Revision]orbit.Revision
	views [4]*orbit.State
	sent  []orbit.Proposal
	ids   uint64
	count map[string]int
	// Changes in the store's log that have been looked at.
	logged int
	// Records that were deleted.
	swept int
}

func newDuel(t *rapid.T, o Options, ledgers int) *duel {
	d := &duel{store: newStore(), options: o, revs: map[orbit.Revision]orbit.Revision{}, count: map[string]int{}}
	for range ledgers {
		d.ledgers, d.reloaded = append(d.ledgers, d.open(t)), append(d.reloaded, false)
	}
	d.memory = &orbit.MemoryLedger{Bounds: d.ledgers[0].Limits()}
	for i := range d.views {
		d.views[i] = d.snapshot(t)
	}
	return d
}

func (d *duel) open(t *rapid.T) *Ledger {
	o := d.options
	o.OnError = func(err error) { t.Errorf("in the background: %v", err) }
	l, err := Open(bg, d.store.client(&plan{}), o)
	require.NoError(t, err)
	return l
}

// close closes the ledgers and requires that no goroutine or watch is left.
func (d *duel) close(t *rapid.T) {
	for _, l := range d.ledgers {
		require.NoError(t, l.Close())
	}
	synctest.Wait()
	require.Zero(t, d.store.busy(), "requests or watches are left")
}

func (d *duel) snapshot(t *rapid.T) *orbit.State {
	s, err := d.memory.Snapshot(bg)
	require.NoError(t, err)
	return s
}

// rev translates a revision of memory into one of the store.
func (d *duel) rev(r orbit.Revision) orbit.Revision {
	if r == neverSeen {
		return r
	}
	return d.revs[r]
}

// translate returns a proposal with the store's revisions.
func (d *duel) translate(p orbit.Proposal) orbit.Proposal {
	p.View = d.rev(p.View)
	bets := p.If
	p.If = nil
	for _, bet := range bets {
		switch b := bet.(type) {
		case orbit.NodeAt:
			bet = orbit.NodeAt{Node: b.Node, Usage: d.rev(b.Usage), Specification: d.rev(b.Specification)}
		case orbit.MarkAt:
			bet = orbit.MarkAt{Key: b.Key, Revision: d.rev(b.Revision)}
		}
		p.If = append(p.If, bet)
	}
	p.Do = slices.Clone(p.Do)
	for i, c := range p.Do {
		switch c := c.(type) {
		case orbit.Nominate:
			c.Since = d.rev(c.Since)
			p.Do[i] = c
		case orbit.Evict:
			c.Since = d.rev(c.Since)
			p.Do[i] = c
		case orbit.Confirm:
			c.Since = d.rev(c.Since)
			p.Do[i] = c
		case orbit.Protect:
			c.Since = d.rev(c.Since)
			p.Do[i] = c
		case orbit.Resize:
			c.Since = d.rev(c.Since)
			p.Do[i] = c
		}
	}
	return p
}

func (d *duel) scribe(t *rapid.T, view *orbit.State) *scribe {
	return &scribe{T: t, view: view, ids: &d.ids}
}

// propose draws a proposal of one of several navigators, whose views are of different ages.
func (d *duel) propose(t *rapid.T, refresh int) {
	nav := rapid.IntRange(0, len(d.views)-1).Draw(t, "navigator")
	s := d.scribe(t, d.views[nav])
	if s.chance(refresh) {
		d.views[nav] = d.snapshot(t)
	}
	s.view = d.views[nav]
	p := s.proposal()
	d.sent = append(d.sent, p)
	d.send(t, p)
}

// isAmbiguous reports whether a proposal begins what waits, and was placed at a revision that the store has for several: what has
// left after it, at the same one, is waited for there too. And where few released records are kept, it is ambiguous to submit an id again: the
// record that had it makes room among those that are kept, and a ledger that is opened then still finds one in the store that others have dropped.
func (d *duel) isAmbiguous(t *rapid.T, p orbit.Proposal) bool {
	s := d.snapshot(t)
	return slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool {
		if submit, ok := do.(orbit.Submit); ok && d.memory.Limits().Terminal < 100 {
			ids := slices.Clone(submit.IDs)
			if submit.Gang != nil {
				for _, r := range submit.Gang.Roles {
					ids = append(ids, r.Members...)
				}
			}
			return slices.ContainsFunc(ids, func(id orbit.CapsuleID) bool { return s.Capsule(id) != nil })
		}
		c, ok := do.(orbit.Confirm)
		k := s.Capsule(c.Capsule)
		return ok && k != nil && k.Waits && d.shared(d.rev(k.PlacedAt))
	})
}

// send proposes to both and compares the outcomes.
func (d *duel) send(t *rapid.T, p orbit.Proposal) {
	if d.isAmbiguous(t, p) {
		return
	}
	which := rapid.IntRange(0, len(d.ledgers)-1).Draw(t, "ledger")
	theirs := d.translate(p)
	at, wanted := d.memory.Propose(bg, p)
	rev, err := d.ledgers[which].Propose(bg, theirs)
	if err == nil && wanted != nil {
		at, wanted = d.memory.Propose(bg, d.lenient(p))
	}
	d.compare(t, p, orbit.Outcome{Revision: at, Err: wanted}, orbit.Outcome{Revision: rev, Err: err}, d.reloaded[which])
}

// compare compares the outcomes of one proposal.
func (d *duel) compare(t *rapid.T, p orbit.Proposal, want, got orbit.Outcome, reloaded bool) {
	if want.Err == nil {
		require.NoError(t, got.Err, "memory commits %+v", p)
		if known, ok := d.revs[want.Revision]; ok {
			require.Equal(t, known, got.Revision, "a repeated proposal has the same revision")
			d.count["repeated"]++
			return
		}
		d.revs[want.Revision] = got.Revision
		d.count["committed"]++
		return
	}
	var w, g *orbit.Rejection
	require.ErrorAs(t, want.Err, &w)
	require.ErrorAs(t, got.Err, &g, "%+v: memory says %v", p, want.Err)
	require.Zero(t, got.Revision)
	d.count[g.Kind.Error()]++
	receipt := func(r *orbit.Rejection, rev func(orbit.Revision) orbit.Revision) orbit.Rejection {
		out := *r
		out.Reason, out.Bet = "", nil
		out.At, out.TakenAt = rev(r.At), rev(r.TakenAt)
		if d.memory.Limits().History < 100 && g.TakenBy.IsZero() {
			out.TakenBy = g.TakenBy // the history may have only a part of that commit
		}
		if reloaded || d.shared(d.rev(w.TakenAt)) { // it is not always clear which of several proposals at one revision the receipt means
			out.Kind, out.TakenAt, out.TakenBy = nil, 0, orbit.ProposalID{}
		}
		return out
	}
	require.Equal(t, receipt(w, d.rev), receipt(g, same), "%+v: memory says %v", p, want.Err)
	require.Equal(t, errors.Is(w, orbit.ErrInvalid), errors.Is(g, orbit.ErrInvalid))
}

// shared reports whether several proposals were committed at one revision of the store.
func (d *duel) shared(rev orbit.Revision) bool {
	n := 0
	for _, at := range d.revs {
		if at == rev {
			n++
		}
	}
	return n > 1
}

// batch sends several proposals in one call.
func (d *duel) batch(t *rapid.T) {
	which := rapid.IntRange(0, len(d.ledgers)-1).Draw(t, "ledger")
	s := d.scribe(t, d.snapshot(t))
	d.order(t, nil)
	var ours, theirs []orbit.Proposal
	for range rapid.IntRange(2, 5).Draw(t, "batch") {
		p := s.proposal()
		if d.isAmbiguous(t, p) {
			continue
		}
		p.ID = idOf(d.ids)                                                      // one without an id goes into a transaction of its own, at the same time as the others
		if d.memory.Limits().ProposalIDs > 10 && s.chance(8) && len(ours) > 0 { // with few ids to keep, it would be forgotten meanwhile
			p = ours[0]
		}
		ours, theirs = append(ours, p), append(theirs, d.translate(p))
	}
	got := d.ledgers[which].ProposeBatch(bg, theirs)
	order := d.order(t, ours)
	for _, i := range order { // proposals that share no record may be committed in any order
		rev, err := d.memory.Propose(bg, d.lenient(ours[i]))
		require.NoError(t, err, "etcd commits %+v", ours[i])
		d.revs[rev] = got[i].Revision
	}
	for i, p := range ours {
		if got[i].Err == nil {
			again := i > 0 && p.ID == ours[0].ID || slices.Contains(slices.Collect(maps.Values(d.revs)), got[i].Revision)
			require.True(t, slices.Contains(order, i) || again, "%+v was not committed", p)
			continue
		}
		var r *orbit.Rejection
		require.ErrorAs(t, got[i].Err, &r)
		rev, err := d.memory.Propose(bg, p)
		require.Equal(t, errors.Is(err, orbit.ErrInvalid), errors.Is(r, orbit.ErrInvalid))
		if err == nil { // it holds after the others
			d.revs[rev] = d.commit(t, which, theirs[i])
		}
	}
	d.sent = append(d.sent, ours...)
}

// lenient returns a proposal without bets on gangs that have been dropped. Dropping a gang does not change its record,
// so a ledger that does not know of it yet may still accept a bet that the gang, whose members have all ended, has no
// placed member.
func (d *duel) lenient(p orbit.Proposal) orbit.Proposal {
	s, _ := d.memory.Snapshot(bg)
	p.If = slices.DeleteFunc(slices.Clone(p.If), func(bet orbit.Precondition) bool {
		g, ok := bet.(orbit.GangUnplaced)
		return ok && s.Gang(g.Gang) == nil
	})
	return p
}

// commit sends a proposal that must hold again.
func (d *duel) commit(t *rapid.T, which int, p orbit.Proposal) orbit.Revision {
	rev, err := d.ledgers[which].Propose(bg, p)
	require.NoError(t, err, "memory commits %+v", p)
	return rev
}

// order returns the proposals that the log has now and did not have before, in the order of the log.
func (d *duel) order(t *rapid.T, batch []orbit.Proposal) (out []int) {
	log := d.store.history(t, d.ledgers[0].keys)
	for _, c := range log[d.logged:] {
		i := slices.IndexFunc(batch, func(p orbit.Proposal) bool { return p.ID == c.ID })
		if i >= 0 && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	d.logged = len(log)
	return out
}

// history returns all changes that were ever committed.
func (s *store) history(t require.TestingT, k keys) (out []orbit.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.log {
		for _, e := range h.events {
			if string(e.Kv.Key) == k.log() {
				entry, err := decodeEntry(e.Kv.Value, orbit.Revision(h.at))
				require.NoError(t, err)
				out = append(out, entry.changes()...)
			}
		}
	}
	return out
}

// invariants hold after every step.
func (d *duel) invariants(t *rapid.T) {
	want := textOf(d.snapshot(t), d.rev)
	for i, l := range d.ledgers {
		s, err := l.Snapshot(bg)
		require.NoError(t, err)
		require.Empty(t, differ(textOf(s, same), want), "ledger %d and memory differ", i)
		require.NoError(t, s.Verify())
	}
}

// look opens one more ledger, which must agree with the others.
func (d *duel) look(t *rapid.T) {
	l := d.open(t)
	defer func() { require.NoError(t, l.Close()) }()
	s, err := l.Snapshot(bg)
	require.NoError(t, err)
	require.Empty(t, differ(textOf(s, same), textOf(d.snapshot(t), d.rev)), "a fresh mirror differs from memory")
	require.NoError(t, s.Verify())
}

// replace closes one ledger and opens another in its place.
func (d *duel) replace(t *rapid.T) {
	which := rapid.IntRange(0, len(d.ledgers)-1).Draw(t, "which")
	require.NoError(t, d.ledgers[which].Close())
	d.ledgers[which], d.reloaded[which] = d.open(t), true
}

// sweep runs GC on one ledger, after which no record is left that the state does not need.
func (d *duel) sweep(t *rapid.T) {
	l := d.ledgers[rapid.IntRange(0, len(d.ledgers)-1).Draw(t, "sweeper")]
	if _, err := l.Snapshot(bg); err != nil { // so that it has the commits of the others
		t.Fatal(err)
	}
	n, err := l.GC(bg)
	require.NoError(t, err)
	d.swept += n
	s := d.snapshot(t)
	for _, key := range d.store.present() {
		if r, ok := l.keys.parse(key); ok {
			require.False(t, isGarbage(s, r), "%q is left after a sweep", key)
		}
	}
}

func (d *duel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":        d.invariants,
		"fresh":   func(t *rapid.T) { d.propose(t, 1) },
		"fresher": func(t *rapid.T) { d.propose(t, 1) },
		"stale":   func(t *rapid.T) { d.propose(t, 5) },
		"again": func(t *rapid.T) {
			if len(d.sent) > 0 {
				d.send(t, rapid.SampledFrom(d.sent).Draw(t, "again"))
			}
		},
		"batch":   d.batch,
		"look":    d.look,
		"replace": d.replace,
		"sweep":   d.sweep,
	}
}

// populate adds some nodes and submits some capsules.
func (d *duel) populate(t *rapid.T) {
	for range rapid.IntRange(0, 8).Draw(t, "populate") {
		s := d.scribe(t, d.snapshot(t))
		id := s.newID()
		d.send(t, orbit.Proposal{ID: id, Do: pick(s, []draft{
			func(s *scribe) []orbit.Commitment {
				return []orbit.Commitment{orbit.PutNode{Node: s.node(pick(s, scribeNodes))}}
			},
			draftSubmit,
			func(s *scribe) []orbit.Commitment { return []orbit.Commitment{orbit.Submit{Gang: s.gang()}} },
		})(s)})
	}
}

// fight runs duels and counts the outcomes that they reach.
func fight(t *testing.T, ledgers int, options func(*rapid.T) Options) {
	t.Helper()
	for total := range scale.Reach(t, "committed", "repeated", "conflict", "infeasible", "invalid", "swept") {
		rapid.Check(t, func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) {
				d := newDuel(t, options(t), ledgers)
				defer d.close(t)
				d.populate(t)
				t.Repeat(d.actions())
				d.look(t)
				d.count["swept"] += d.swept
				for k, n := range d.count {
					total[k] += n
				}
			})
		})
	}
}

// TestAgainstMemory: for all proposals, on views of any age and through either of two ledgers, the outcome and the
// state are those of a ledger in memory. A mirror made from the records agrees with one that has followed the log.
func TestAgainstMemory(t *testing.T) {
	t.Parallel()
	fight(t, 2, func(*rapid.T) Options {
		return Options{GCInterval: time.Minute, Bounds: orbit.Limits{NominatedShare: 100}}
	})
}

// TestAgainstMemoryTinyLimits is the same with limits so small that records, ids and history are dropped all the time.
func TestAgainstMemoryTinyLimits(t *testing.T) {
	t.Parallel()
	few := rapid.IntRange(1, 3)
	fight(t, 2, func(t *rapid.T) Options {
		return Options{GCInterval: -1, Bounds: orbit.Limits{
			Terminal: few.Draw(t, "terminal"), ProposalIDs: few.Draw(t, "ids"), PlacementIDs: few.Draw(t, "placement ids"),
			History: 4 * few.Draw(t, "history"), Renewals: few.Draw(t, "renewals"), NominatedShare: 25 * few.Draw(t, "share"),
		}}
	})
}
