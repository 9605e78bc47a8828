package control

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// desk is a ledger with one large node, of which a test plays engines and agent.
type desk struct {
	*rapid.T
	c *Control
	// What was submitted of each batch and gang, by id.
	submitted map[orbit.CapsuleID]int
	// What the members of all queues took at the last look.
	used int64
}

func (d *desk) state() *orbit.State {
	s, err := d.c.ledger.Snapshot(context.Background())
	require.NoError(d, err)
	return s
}

func (d *desk) commit(do ...orbit.Commitment) {
	d.Helper()
	_, err := d.c.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(d, err)
}

// align does what the control process does when something has changed, until it has nothing to do.
func (d *desk) align() {
	d.Helper()
	for range 50 {
		before := d.state()
		require.NoError(d, d.c.align(context.Background(), before))
		if d.state().Revision() == before.Revision() {
			return
		}
	}
	require.Fail(d, "the plan does not come to rest")
}

// try commits what the ledger may refuse.
func (d *desk) try(do ...orbit.Commitment) {
	d.Helper()
	_, err := d.c.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	if err != nil {
		require.ErrorIs(d, err, orbit.ErrConflict, "the quota is used up")
	}
}

// run places what waits, if place and as far as the quota allows, and has the agent say that it serves.
func (d *desk) run(place bool) {
	for c := range d.state().Capsules() {
		switch {
		case c.Remains() != nil:
			d.commit(orbit.Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true})
		case c.Pending() && place && c.Gang() == "":
			d.try(orbit.Place{Capsule: c.ID, Node: "n"})
		case c.Placed() && !c.Ready:
			d.commit(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Ready: true})
		}
	}
	for g := range d.state().Gangs() {
		var do []orbit.Commitment
		for c := range d.state().Members(g.Gang.ID) {
			if c.Pending() && place {
				do = append(do, orbit.Place{Capsule: c.ID, Node: "n"})
			}
		}
		if len(do) > 0 {
			d.try(do...)
		}
	}
}

// check requires what holds at every moment.
func (d *desk) check() {
	w := read(d.state())
	require.Empty(d, w.broken)
	used, quota := int64(0), int64(0)
	for c := range w.state.Capsules() {
		if c.Placed() && c.Spec.Queue != "" {
			used += c.Spec.Envelope.Reservation[orbit.CPU]
		}
	}
	for q := range w.state.Queues() {
		quota += q.Queue.Nominal["cpu"]
	}
	require.LessOrEqual(d, used, max(quota, d.used), "a smaller quota ends nothing, and lets nothing begin")
	d.used = used
}

// putQueue makes one of the two queues, which lend to each other, or changes its quota.
func (d *desk) putQueue(id orbit.QueueID, cpu int64) {
	d.commit(orbit.PutQueue{Queue: orbit.Queue{ID: id, Parent: "lab", Nominal: map[string]int64{"cpu": cpu}}})
}

// put changes a job as the API does.
func (d *desk) put(j Job) {
	err := d.c.change(context.Background(), func(w *world) ([]orbit.Commitment, []orbit.Precondition, error) {
		old := w.jobs[j.Name]
		if old == nil && len(w.members[j.Name]) > 0 {
			return nil, nil, nil
		}
		j.Generation, j.Submitted = 1, 0
		if old != nil {
			j.Kind, j.Queue = old.Kind, old.Queue
			j.Generation, j.Submitted = old.Generation, old.Submitted
			if j.Kind == Service {
				j.Generation++
			}
			if j.Kind == Gang {
				j.Count = old.Count
			}
		}
		require.NoError(d, j.check())
		return []orbit.Commitment{j.mark()}, nil, nil
	})
	require.NoError(d, err)
}

// TestPlan changes jobs and quotas at random, and plays engines and agent. Quotas hold, plans come to rest, no member of a
// batch or a gang is submitted twice, a rollout leaves as many serving as it may, and in the end all is as the jobs want it.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger := &orbit.MemoryLedger{}
		d := &desk{t, &Control{ledger: ledger}, map[orbit.CapsuleID]int{}, 0}
		d.commit(orbit.PutNode{Node: orbit.Node{ID: "n", Confirms: true, Capacity: orbit.Resources{orbit.CPU: 1 << 40, orbit.Memory: 1 << 50}}})
		d.commit(orbit.PutQueue{Queue: orbit.Queue{ID: "lab"}})
		d.putQueue("red", 500)
		d.putQueue("blue", 500)
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { d.check() },
			"put": func(t *rapid.T) {
				kind := rapid.SampledFrom([]Kind{Service, Service, Batch, Gang}).Draw(t, "kind")
				d.put(Job{
					Name: string(kind) + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), Kind: kind, Count: rapid.IntRange(1, 5).Draw(t, "count"),
					Run: []string{"x"}, CPU: int64(rapid.IntRange(1, 3).Draw(t, "cpu") * 100), Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")),
					Queue: rapid.SampledFrom([]string{"", "red", "blue"}).Draw(t, "queue"), Missing: rapid.IntRange(0, 2).Draw(t, "missing"), Surge: rapid.IntRange(0, 1).Draw(t, "surge"),
				})
			},
			"delete": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"servicea", "batcha", "ganga"}).Draw(t, "name")
				do := []orbit.Commitment{orbit.Mark{Key: keyJob + name}}
				if _, has := d.state().Budget(orbit.BudgetID("rollout/" + name)); has {
					do = append(do, orbit.RemoveBudget{Budget: orbit.BudgetID("rollout/" + name)})
				}
				d.commit(do...)
				d.align()
				clear(d.submitted) // those of a new job by that name are others
			},
			"quota": func(t *rapid.T) {
				id := rapid.SampledFrom([]orbit.QueueID{"red", "blue"}).Draw(t, "queue")
				d.putQueue(id, int64(rapid.IntRange(0, 10).Draw(t, "cpu")*100))
			},
			"align": func(*rapid.T) { d.alignAndLook() },
			"run":   func(t *rapid.T) { d.run(rapid.Bool().Draw(t, "place")) },
			"done": func(*rapid.T) {
				for c := range d.state().Capsules() {
					if c.Placed() && c.Ready && c.Labels()["keep"] == "" {
						d.commit(orbit.Release{Capsule: c.ID, Final: true}, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Stopped: true})
						return
					}
				}
			},
		})
		d.putQueue("red", 1<<40)
		for range 40 {
			d.align()
			d.run(true)
		}
		w := read(d.state())
		for name, j := range w.jobs {
			s := w.status(j)
			require.Zero(t, s.Pending, name)
			if j.Kind == Service {
				require.Equal(t, j.Count, s.Ready, "%s serves", name)
				require.Equal(t, j.Count, s.Newest, "%s is rolled out", name)
			} else {
				require.GreaterOrEqual(t, j.Submitted, j.Count, name)
			}
		}
	})
}

// alignAndLook aligns, and looks at what the plan has done.
func (d *desk) alignAndLook() {
	before, from := read(d.state()), d.state().Revision()
	d.align()
	changes, err := d.c.ledger.Changes(context.Background(), from)
	require.NoError(d, err)
	for _, change := range changes {
		if s, ok := change.Do.(orbit.Submit); ok {
			ids := s.IDs
			if s.Gang != nil {
				ids = s.Gang.Roles[0].Members
			}
			for _, id := range ids {
				if c := d.state().Capsule(id); c.Spec.Class != orbit.LatencySensitive {
					d.submitted[id]++
					require.Equal(d, 1, d.submitted[id], id)
				}
			}
		}
	}
	for name, members := range before.members {
		j, serving := before.jobs[name], 0
		if j == nil || j.Kind != Service {
			continue
		}
		wanted := 0
		for _, c := range members {
			if c.Ready {
				wanted++
				if now := d.state().Capsule(c.ID); now.Ready && now.PlacedAt == c.PlacedAt {
					serving++
				}
			}
		}
		missing := j.Missing
		if j.Surge == 0 {
			missing = max(missing, 1)
		}
		require.GreaterOrEqual(d, serving, min(wanted, j.Count-missing), "%s serves less than it may", name)
	}
}

// TestExplainGang: a member of a gang that fits by itself waits for the others, and not for those that have ended.
func TestExplainGang(t *testing.T) {
	ctx, ledger := t.Context(), &orbit.MemoryLedger{}
	commit := func(do ...orbit.Commitment) *world {
		_, err := ledger.Propose(ctx, orbit.Proposal{Do: do})
		require.NoError(t, err)
		s, err := ledger.Snapshot(ctx)
		require.NoError(t, err)
		return read(s)
	}
	job := Job{Name: "train", Kind: Gang, Count: 3, CPU: 1000, Run: []string{"sleep"}}
	commit(orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 2000, orbit.Memory: 1 << 40, orbit.Slots: 9}}})
	w := commit(orbit.Submit{Gang: job.gang(1)})
	why, err := w.why(ctx, w.state.Capsule(job.member(0)))
	require.NoError(t, err)
	require.Equal(t, `gang "train.1" needs 3 members placed at once`, why[0])
	w = commit(orbit.Release{Capsule: job.member(2), Final: true})
	why, err = w.why(ctx, w.state.Capsule(job.member(0)))
	require.NoError(t, err)
	require.Contains(t, why[1], "all 2 fit")
}
