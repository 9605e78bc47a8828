package nav_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// gangWatch follows every revision of a ledger by replaying its changes, and complains of every state in which a part
// of a gang is placed that was not placed before.
type gangWatch struct {
	ledger orbit.Ledger
	state  *orbit.State
	seen   int
	faults []error
}

// follow replays what is new, revision by revision.
func (w *gangWatch) follow(ctx context.Context) error {
	changes, err := w.ledger.Changes(ctx, w.state.Revision())
	if err != nil {
		return err
	}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		next, err := w.state.Apply(changes[:n])
		if err != nil {
			return fmt.Errorf("revision %d does not replay: %w", changes[0].Revision, err)
		}
		w.compare(next)
		w.state, changes = next, changes[n:]
		w.seen++
	}
	return nil
}

// compare looks for gangs that have begun, and checks that they did so with every role's minimum and on one rack.
func (w *gangWatch) compare(next *orbit.State) {
	for g := range next.Gangs() {
		was := w.state.Gang(g.Gang.ID)
		if g.Total() == 0 || was != nil && was.Total() > 0 {
			continue
		}
		racks := map[string]bool{}
		for i, r := range g.Gang.Roles {
			if least := g.Minimum(i); g.Placed[i] < least {
				w.faults = append(w.faults, fmt.Errorf("at %d gang %q has %d of role %d, at least %d", next.Revision(), g.Gang.ID, g.Placed[i], i, least))
			}
			for _, id := range r.Members {
				if c := next.Capsule(id); c != nil && c.Placed() {
					racks[next.Node(c.Node).Node.Labels["rack"]] = true
				}
			}
		}
		if len(racks) != 1 || racks[""] {
			w.faults = append(w.faults, fmt.Errorf("at %d gang %q is on racks %v", next.Revision(), g.Gang.ID, racks))
		}
	}
}

// SCENARIOS 15 and 16, I1, I3: on full racks a gang, a services and a batch navigator race, capsules come and go, and
// a reader that follows every revision never sees part of a gang, nor a role below its minimum, nor a gang on two
// racks. What conflicts leaves no trace: every revision replays by the rules of the ledger.
func TestGangRacesOnFullRacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.IntRange(1, 3).Draw(t, "racks")
		gangs := rapid.SliceOfN(rapid.IntRange(1, 6), 1, 6).Draw(t, "gangs")
		least := rapid.SliceOfN(rapid.IntRange(0, 6), 6, 6).Draw(t, "least")
		singles := rapid.IntRange(5, 40).Draw(t, "singles")
		ends := rapid.SliceOfN(rapid.IntRange(0, 1000), 5, 30).Draw(t, "ends")
		raceGangs(t, racks, gangs, least, singles, ends)
	})
}

func raceGangs(t *rapid.T, racks int, gangs, least []int, singles int, ends []int) {
	l := &orbit.MemoryLedger{}
	for r := range racks {
		rackOf(t, l, fmt.Sprint("r", r), 4, 8)
	}
	engines := []*orbit.Engine{
		{Name: "gang", Ledger: l, Navigator: impatient(&nav.Gang{})},
		{Name: "services", Ledger: l, Navigator: &nav.Services{Placement: &place.Sampled{}}},
		{Name: "batch", Ledger: l, Navigator: batchLike()},
	}
	watch := gangWatch{ledger: l, state: snapshot(t, l)}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := watch.follow(context.Background())
			select {
			case <-stop:
				done <- errors.Join(err, watch.follow(context.Background()))
				return
			default:
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, e := range engines {
		e.Backoff = orbit.Backoff{Max: time.Millisecond, Initial: 100 * time.Microsecond}
		running.Add(1)
		go func() {
			defer running.Done()
			assert.NoError(t, e.Run(ctx))
		}()
	}
	stirGangs(t, l, gangs, least, singles, ends)
	cancel()
	running.Wait()
	close(stop)
	require.NoError(t, <-done)
	require.Empty(t, watch.faults)
	require.Equal(t, snapshot(t, l).Revision(), watch.state.Revision())
	sound(t, l)
}

// stirGangs submits everything, and then ends what runs here and there.
func stirGangs(t *rapid.T, l orbit.Ledger, gangs, least []int, singles int, ends []int) {
	for i := range singles {
		s := spec(int64(1+i%4), 0)
		if i%2 == 0 {
			s.Class = orbit.Batch
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("s", i))}, Spec: s})
	}
	for i, n := range gangs {
		g := &orbit.Gang{ID: orbit.GangID(fmt.Sprint("g", i)), Levels: []string{"rack"}}
		for role := range 2 {
			r := orbit.Role{Name: fmt.Sprint(role), Spec: gangSpec(int64(2 + 3*role)), Min: min(n, least[i])}
			for k := range n {
				r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("g", i, "-", role, "-", k)))
			}
			g.Roles = append(g.Roles, r)
		}
		commit(t, l, orbit.Submit{Gang: g})
	}
	for _, end := range ends {
		time.Sleep(time.Duration(end) * time.Microsecond / 4)
		var running []*orbit.Capsule
		for c := range snapshot(t, l).Capsules() {
			if c.Placed() {
				running = append(running, c)
			}
		}
		if len(running) > 0 {
			c := running[end%len(running)]
			_, err := l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{ended(c, end%3 > 0)}})
			require.NoError(t, err)
		}
	}
}

// batchLike packs batch capsules first fit by node id, one proposal each.
func batchLike() orbit.Navigator { return &firstFit{} }

type firstFit struct{}

func (*firstFit) Claims(_ string, class orbit.AppClass) bool { return class == orbit.Batch }

func (*firstFit) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	used := map[orbit.NodeID]orbit.Resources{}
next:
	for _, c := range pending {
		for n := range view.State().Nodes() {
			if sum, ok := used[n.Node.ID].Add(c.Spec.Envelope.Reservation); ok && sum.Within(n.Free()) {
				used[n.Node.ID] = sum
				plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: n.Node.ID}}})
				continue next
			}
		}
	}
	return plan, nil
}
