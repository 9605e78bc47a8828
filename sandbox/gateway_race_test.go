package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
)

// replay goes through a ledger's history change by change, with books of its own beside the state's: no slot is ever
// taken twice, and no capsule is placed while it is placed.
func replay(t require.TestingT, l *orbit.MemoryLedger) {
	changes, err := l.Changes(context.Background(), 0)
	require.NoError(t, err)
	state := snapshot(t, &orbit.MemoryLedger{})
	capacity, used, on := map[orbit.NodeID]int64{}, map[orbit.NodeID]int64{}, map[orbit.CapsuleID]orbit.NodeID{}
	for from := 0; from < len(changes); {
		to := from
		for to < len(changes) && changes[to].Revision == changes[from].Revision {
			switch do := changes[to].Do.(type) {
			case orbit.PutNode:
				capacity[do.Node.ID] = do.Node.Capacity[orbit.Slots]
			case orbit.Place:
				require.Empty(t, on[do.Capsule], "capsule %s is placed twice", do.Capsule)
				on[do.Capsule] = do.Node
				used[do.Node]++
				require.LessOrEqual(t, used[do.Node], capacity[do.Node], "node %s at revision %d", do.Node, changes[to].Revision)
			case orbit.Release:
				if node := on[do.Capsule]; node != "" {
					used[node]--
				}
				delete(on, do.Capsule)
			}
			to++
		}
		state, err = state.Apply(changes[from:to])
		require.NoError(t, err)
		for _, c := range changes[from:to] {
			if n := state.Node(c.Node); n != nil {
				require.True(t, n.Used().Within(n.Node.Capacity))
				require.Equal(t, used[c.Node], n.Used()[orbit.Slots])
			}
		}
		from = to
	}
	require.NoError(t, state.Verify())
	require.Equal(t, snapshot(t, l).Revision(), state.Revision())
}

// typed reports whether a create's error is one that it may return while the ledger answers.
func typed(err error) bool {
	return errors.As(err, new(*sandbox.WarmNoFit)) || errors.Is(err, sandbox.ErrStart)
}

// Many creators, few slots, several gateways with views of all ages, heartbeats that lie about everything, starts that
// fail, deletes, and hosts that come and go: no slot is taken twice, every create ends with a node or a typed error, and
// what is in the ledger at the end is what was created and not deleted (I1, I2, I4).
func TestGatewayNeverTakesASlotTwice(t *testing.T) {
	scale.Long(t)
	f := newFleet(t)
	const hosts, creators, each = 6, 24, 60
	for i := range hosts {
		f.host(fmt.Sprint("h", i), int64(1+i), 18, 0)
	}
	var gateways []*sandbox.Gateway
	for i, cache := range []time.Duration{0, time.Millisecond, -1, time.Hour} {
		g := &sandbox.Gateway{Ledger: f.ledger, Board: f.board, Cache: cache, Seed: uint64(i), AllowStale: i == 1}
		g.Start = func(_ context.Context, c sandbox.Created) (bool, error) {
			if rand.IntN(4) == 0 {
				return false, errors.New("503")
			}
			return rand.IntN(2) == 0 && c.Warm, nil
		}
		gateways = append(gateways, g)
	}
	ctx, stop := context.WithCancel(context.Background())
	var upset, all sync.WaitGroup
	upset.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			i := rand.IntN(hosts)
			id := orbit.NodeID(fmt.Sprint("h", i))
			_ = f.board.Report(orbit.Report{Node: id, At: time.Now(), FreeSlots: rand.IntN(30), CPUPercent: float64(rand.IntN(100)),
				Warm: map[string]int{code: rand.IntN(30)}, Templates: []string{code}})
			if n%8 == 0 {
				commit(t, f.ledger, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.Slots: int64(1 + i)}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[n%16 == 0]}})
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	var mu sync.Mutex
	live, refused := map[orbit.CapsuleID]orbit.NodeID{}, 0
	for k := range creators {
		all.Go(func() {
			var mine []sandbox.Created
			for i := range each {
				g := gateways[(k+i)%len(gateways)]
				made, err := g.Create(ctx, orbit.CapsuleID(fmt.Sprint(k, "-", i)), bootSpec(code))
				if err != nil {
					mu.Lock()
					refused++
					mu.Unlock()
					if !typed(err) {
						t.Errorf("create: %v", err)
					}
				} else {
					mine = append(mine, made)
				}
				if len(mine) > 0 && (i%3 > 0 || err != nil) {
					if err := g.Delete(ctx, mine[0].Capsule); err != nil {
						t.Errorf("delete: %v", err)
					}
					mine = mine[1:]
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for _, made := range mine {
				live[made.Capsule] = made.Node
			}
		})
	}
	all.Wait()
	stop()
	upset.Wait()
	replay(t, f.ledger)
	for id, node := range live {
		require.Equal(t, node, snapshot(t, f.ledger).Capsule(id).Node)
	}
	require.Equal(t, len(live), f.live())
	var sum sandbox.GatewayStats
	for _, g := range gateways {
		s := g.Stats()
		require.Equal(t, s.Created, s.Warm+s.Cold)
		sum.Created += s.Created
		sum.Failed += s.Failed
		sum.Conflicts += s.Conflicts
		sum.Retried += s.Retried
		sum.Lies += s.Lies
	}
	require.Equal(t, uint64(creators*each), sum.Created+sum.Failed)
	require.Equal(t, uint64(refused), sum.Failed)
	for name, n := range map[string]uint64{"created": sum.Created, "refused": sum.Failed, "conflicts": sum.Conflicts, "retried": sum.Retried, "lies": sum.Lies} {
		require.Positive(t, n, name)
	}
}

// raceOp is what one of several goroutines does.
type raceOp struct {
	gateway int
	kind    string // create, delete, lie, drain, honest
	node    int
	number  int
}

func drawOps(t *rapid.T, gateways, nodes int) (ops []raceOp) {
	for range rapid.IntRange(1, 12).Draw(t, "ops") {
		ops = append(ops, raceOp{
			gateway: rapid.IntRange(0, gateways-1).Draw(t, "gateway"),
			kind:    rapid.SampledFrom([]string{"create", "create", "create", "delete", "lie", "drain", "honest"}).Draw(t, "kind"),
			node:    rapid.IntRange(0, nodes-1).Draw(t, "node"),
			number:  rapid.IntRange(0, 5).Draw(t, "number"),
		})
	}
	return ops
}

// raceWorld is several gateways over one ledger and board.
type raceWorld struct {
	*fleet
	slots    []int64
	gateways []*sandbox.Gateway
}

func drawRace(t *rapid.T) *raceWorld {
	w := &raceWorld{fleet: newFleet(t), slots: rapid.SliceOfN(rapid.Int64Range(0, 3), 1, 5).Draw(t, "slots")}
	for i, n := range w.slots {
		w.host(fmt.Sprint("h", i), n, rapid.IntRange(0, 4).Draw(t, "warm"), 0)
	}
	for range rapid.IntRange(1, 3).Draw(t, "gateways") {
		w.gateways = append(w.gateways, &sandbox.Gateway{
			Ledger: w.ledger, Board: w.board, Seed: rapid.Uint64Range(0, 2).Draw(t, "seed"),
			Cache: rapid.SampledFrom([]time.Duration{0, -1, time.Microsecond}).Draw(t, "cache"),
			Start: rapid.SampledFrom([]func(context.Context, sandbox.Created) (bool, error){
				nil,
				func(_ context.Context, c sandbox.Created) (bool, error) { return c.Warm, nil },
				func(_ context.Context, c sandbox.Created) (bool, error) { return false, nil },
				func(_ context.Context, c sandbox.Created) (bool, error) {
					if c.Node == "h0" {
						return false, errors.New("503")
					}
					return c.Warm, nil
				},
			}).Draw(t, "start"),
		})
	}
	return w
}

// do runs the operations of one goroutine.
func (w *raceWorld) do(who int, ops []raceOp) (err error) {
	var mine []orbit.CapsuleID
	for i, op := range ops {
		g, node := w.gateways[op.gateway], fmt.Sprint("h", op.node)
		switch op.kind {
		case "create":
			id := orbit.CapsuleID(fmt.Sprint("c", who, "-", i))
			if _, e := g.Create(context.Background(), id, bootSpec(code)); e == nil {
				mine = append(mine, id)
			} else if !typed(e) {
				err = errors.Join(err, e)
			}
		case "delete":
			if len(mine) > 0 {
				err = errors.Join(err, g.Delete(context.Background(), mine[0]))
				mine = mine[1:]
			}
		case "lie":
			_ = w.board.Report(orbit.Report{Node: orbit.NodeID(node), At: time.Now(), FreeSlots: op.number, Warm: map[string]int{code: 5 - op.number}, Templates: []string{code}})
		case "drain":
			w.put(op.node, op.number%2 == 0)
		case "honest":
			w.honest(op.node)
		}
	}
	return err
}

func (w *raceWorld) put(i int, drained bool) {
	commit(w.t, w.ledger, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("h", i)), Capacity: orbit.Resources{orbit.Slots: w.slots[i]}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[drained]}})
}

// honest is a report of what the ledger has.
func (w *raceWorld) honest(i int) {
	id := fmt.Sprint("h", i)
	n := snapshot(w.t, w.ledger).Node(orbit.NodeID(id))
	_ = w.board.Report(orbit.Report{Node: orbit.NodeID(id), At: time.Now(), FreeSlots: int(n.Free()[orbit.Slots]), Templates: []string{code}})
}

// However creates, deletes, lies and drains of several gateways interleave, no slot is taken twice; and when all is
// quiet and the nodes have reported, every slot that is free can be had through any gateway, and not one more: no
// debit and no claim has been left behind (SCENARIOS 1, 10; I11).
func TestGatewaysShareOneLedger(t *testing.T) {
	scale.Long(t)
	rapid.Check(t, func(t *rapid.T) {
		w := drawRace(t)
		plans := make([][]raceOp, rapid.IntRange(1, 6).Draw(t, "goroutines"))
		for i := range plans {
			plans[i] = drawOps(t, len(w.gateways), len(w.slots))
		}
		errs := make([]error, len(plans))
		var all sync.WaitGroup
		for i := range plans {
			all.Go(func() { errs[i] = w.do(i, plans[i]) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		replay(t, w.ledger)

		free := int64(0)
		for i, slots := range w.slots {
			w.put(i, false)
			w.honest(i)
			free += slots
		}
		free -= int64(w.live())
		for _, g := range w.gateways {
			g.Start = nil
		}
		for i := range free {
			g := w.gateways[rapid.IntRange(0, len(w.gateways)-1).Draw(t, "gateway")]
			_, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("fill", i)), bootSpec(code))
			require.NoError(t, err, "%d of %d free slots", i, free)
		}
		for _, g := range w.gateways {
			_, err := g.Create(context.Background(), "one too many", bootSpec(code))
			require.ErrorIs(t, err, sandbox.ErrNoSlot)
		}
		replay(t, w.ledger)
	})
}

// Warm and gateways share a ledger and a board: a queue's claims are seen by the API, and the other way round.
func TestWarmBesideGateways(t *testing.T) {
	f := newFleet(t)
	for i := range 4 {
		f.host(fmt.Sprint("h", i), 40, 10, 0)
	}
	engine := &orbit.Engine{Ledger: f.ledger, Telemetry: f.board, Navigator: &sandbox.Warm{Board: f.board, Seed: 3}, MaxPlan: 7}
	submit(t, f.ledger, "queued", 60, bootSpec(code))
	var all sync.WaitGroup
	all.Go(func() {
		for snapshot(t, f.ledger).PendingCount() > 0 {
			if round := engine.Pass(context.Background()); len(round.Errors) > 0 {
				t.Error(round.Errors)
				return
			}
		}
	})
	g := f.gateway()
	for k := range 4 {
		all.Go(func() {
			for i := range 25 {
				if _, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("now", k, "-", i)), bootSpec(code)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 160, f.live())
	replay(t, f.ledger)
	warm := 0
	for c := range snapshot(t, f.ledger).Capsules() {
		if c.Note() == sandbox.WarmNote {
			warm++
		}
	}
	require.GreaterOrEqual(t, warm, 40, "every warm slot was promised")
	require.LessOrEqual(t, warm, 40+7, "and at most a plan's worth of them twice")
}

// The board's leases, a fence and gateways: nothing is placed on a node after the end of its term was committed, though
// the gateway's view is an hour old.
func TestGatewayFenceUnderRace(t *testing.T) {
	f := newFleet(t)
	f.board.Leases = &lease.Keeper{Ledger: f.ledger, Terms: -1}
	f.board.PerSecond = -1
	leases, ctx := f.board.Leases, context.Background()
	term := func(id string) lease.Term {
		term, err := leases.Acquire(ctx, id, "agent")
		require.NoError(t, err)
		return term
	}
	f.join("steady", 16_384)
	f.join("flapping", 16_384)
	term("steady")
	f.report("steady", 16_384, 0, 50)
	g := f.gateway()
	g.Cache = time.Hour
	var creators sync.WaitGroup
	done := make(chan struct{})
	creators.Go(func() {
		defer close(done)
		met := false // the two have met: a create went to the node that comes and goes
		for i := 0; i < 300 || !met && i < 10_000; i++ {
			made, err := g.Create(ctx, orbit.CapsuleID(fmt.Sprint("c", i)), bootSpec(code))
			if err != nil {
				t.Error(err)
			}
			met = met || made.Node == "flapping"
		}
	})
	for running := true; running; {
		held := term("flapping")
		f.report("flapping", 16_384, 100, 0)
		_, _ = g.Create(ctx, "never", bootSpec("refused, so that the view is new"))
		require.NoError(t, leases.Resign(ctx, held))
		select {
		case <-done:
			running = false
		default:
		}
	}
	creators.Wait()
	changes, err := f.ledger.Changes(ctx, 0)
	require.NoError(t, err)
	live, placed := false, 0
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.Mark:
			if do.Key == leases.Key("flapping") {
				live = !live
			}
		case orbit.Place:
			if do.Node == "flapping" {
				require.True(t, live, "revision %d", c.Revision)
				placed++
			}
		}
	}
	require.Positive(t, placed)
	replay(t, f.ledger)
}
