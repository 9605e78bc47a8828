package claim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
)

// gpus is a node with as many slots as devices.
func gpus(id orbit.NodeID, model string, count int, unhealthy orbit.DeviceSet) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.Slots: int64(count)},
		Devices: orbit.Devices{Model: model, Count: count, Unhealthy: unhealthy}}}
}

func wantsGPUs(count, milli int, models ...string) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}},
		Devices: orbit.DeviceRequest{Count: count, Milli: milli, Models: models}}
}

// A claim takes as many healthy instances of an accepted model as the spec asks for, and the slot names them. If too
// few are free the request waits until some are given back.
func TestLedgerDevices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ledger := &orbit.MemoryLedger{}
		propose(t, ledger, gpus("a", "fast", 6, 0b100), gpus("b", "slow", 4, 0))
		src := &claim.LedgerSource{Ledger: ledger, Spec: wantsGPUs(2, 1000, "fast")}
		r := newRig(t, &claim.Pool{Source: src}).run()
		one, two, three := r.ask(), r.ask(), r.ask()
		synctest.Wait()
		first, second := got(t, one), got(t, two)
		for c, set := range map[*claim.Result]orbit.DeviceSet{&first: 0b11, &second: 0b11000} {
			require.NoError(t, c.Err)
			assert.Equal(t, "a", c.Slot.Name)
			assert.Equal(t, set, c.Slot.Devices)
			assert.Equal(t, set, snapshot(t, src).Capsule(c.Slot.Capsule).Devices)
		}
		none(t, three)
		require.NoError(t, src.Return(t.Context(), first.Slot))
		synctest.Wait()
		assert.Equal(t, orbit.DeviceSet(0b11), got(t, three).Slot.Devices)
		assert.Zero(t, r.Stats().Conflicts)
	})
}

// Nodes that Join adds have the devices of one claim.
func TestLedgerJoinsDevices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, spec := range []*orbit.Spec{wantsGPUs(3, 1000), wantsGPUs(16, 1, "x", "w"), {Devices: orbit.DeviceRequest{Count: 1, Milli: 600}}} {
			src := &claim.LedgerSource{Spec: spec}
			r := ledgerRig(t, src, 1)
			slot, err := r.Claim(soon(t))
			require.NoError(t, err)
			assert.Equal(t, spec.Devices.Count, slot.Devices.Len())
			synctest.Wait()
			assert.Zero(t, r.Snapshot().IdleReady)
		}
	})
}

// interloper takes instance 0 of a node just before the first claim arrives.
type interloper struct {
	*claim.LedgerSource
	once sync.Once
	take func()
}

func (s *interloper) Claim(ctx context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
	s.once.Do(s.take)
	return s.LedgerSource.Claim(ctx, a)
}

// A claim whose instances have been taken meanwhile is a conflict. The request gets other instances of the same node at
// once, and does not wait until the reservation of the taken ones ends.
func TestLedgerDevicesTakenMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src := &interloper{LedgerSource: &claim.LedgerSource{Spec: wantsGPUs(1, 700)}}
		propose(t, src.Book(), gpus("a", "fast", 2, 0))
		src.take = func() {
			propose(t, src.Book(), orbit.Submit{IDs: []orbit.CapsuleID{"theirs"}, Spec: wantsGPUs(1, 700)},
				orbit.Place{Capsule: "theirs", Node: "a", Devices: 0b1})
			time.Sleep(ms) // the pool has learned of the change before the claim is refused
		}
		r := newRig(t, &claim.Pool{Source: src}).run()
		c := r.ask()
		r.until(ms)
		res := got(t, c)
		require.NoError(t, res.Err)
		assert.Equal(t, orbit.DeviceSet(0b10), res.Slot.Devices)
		assert.Equal(t, uint64(1), r.Stats().Conflicts)
		assert.Equal(t, 0, r.Snapshot().IdleReady)
	})
}

// serves reports whether a node can take one more capsule of a spec, by trying all sets of instances, and whether it
// can with this set. It counts slots and milli from the capsules.
func serves(state *orbit.State, n *orbit.Node, spec *orbit.Spec, set orbit.DeviceSet) (any, this bool) {
	used, free := use(state, n.ID)
	if free = n.Capacity[orbit.Slots] - free; free < spec.Envelope.Reservation[orbit.Slots] {
		return false, false
	}
	if m := spec.Devices.Models; len(m) > 0 && m[0] != n.Devices.Model {
		return false, false
	}
	for s := range orbit.DeviceSet(1 << n.Devices.Count) {
		ok := s.Len() == spec.Devices.Count && s&n.Devices.Unhealthy == 0
		for i := range n.Devices.Count {
			ok = ok && (!s.Has(i) || used[i]+spec.Devices.Milli <= 1000)
		}
		any, this = any || ok, this || ok && s == set
	}
	return any, this
}

// use counts what the capsules on a node take.
func use(state *orbit.State, node orbit.NodeID) (milli [orbit.MaxDevices]int, slots int64) {
	for c := range state.On(node) {
		slots += c.Spec.Envelope.Reservation[orbit.Slots]
		for i := range milli {
			if c.Devices.Has(i) {
				milli[i] += c.Spec.Devices.Milli
			}
		}
	}
	return milli, slots
}

var deviceSpecs = []*orbit.Spec{
	wantsGPUs(1, 300), wantsGPUs(1, 1000, "fast"), wantsGPUs(2, 500), wantsGPUs(3, 400, "slow"), wantsGPUs(2, 1000),
}

// A listing shows exactly the nodes that brute force finds suitable, each with a set of instances that fits.
func TestLedgerDevicesAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger := &orbit.MemoryLedger{}
		for i := range 3 {
			count := rapid.IntRange(0, 6).Draw(t, "count")
			unhealthy := orbit.DeviceSet(rapid.IntRange(0, 1<<count-1).Draw(t, "unhealthy") & rapid.IntRange(0, 63).Draw(t, "mask"))
			node := gpus(orbit.NodeID(fmt.Sprint("n", i)), rapid.SampledFrom([]string{"fast", "slow"}).Draw(t, "model"), count, unhealthy)
			if _, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{node}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 12 {
			spec := rapid.SampledFrom(deviceSpecs).Draw(t, "spec")
			src := &claim.LedgerSource{Ledger: ledger, Spec: spec}
			l, err := src.Idle(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			state, _ := ledger.Snapshot(context.Background())
			listed := map[orbit.NodeID]claim.Slot{}
			for _, s := range l.Slots {
				listed[orbit.NodeID(s.Name)] = s
			}
			for n := range state.Nodes() {
				slot, ok := listed[n.Node.ID]
				if fits, this := serves(state, n.Node, spec, slot.Devices); fits != ok || ok != this {
					t.Fatalf("%s: listed %v with %b; brute force: %v, with this set %v", n.Node.ID, ok, slot.Devices, fits, this)
				}
			}
			if len(l.Slots) > 0 {
				slot := l.Slots[rapid.IntRange(0, len(l.Slots)-1).Draw(t, "slot")]
				if _, _, err := src.Claim(context.Background(), claim.Attempt{ID: orbit.NewProposalID(), Slot: slot}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Several pools with different specs, and a client that places directly, race for the devices of a few nodes. No
// instance is oversubscribed at any revision, every holder of a slot has what its spec asks for, and at the end brute
// force finds no place for what still waits.
func TestLedgerDevicesRace(t *testing.T) {
	bubble(t, func(t *testing.T) { devicesRace(t, 20) })
}

func devicesRace(t *testing.T, rounds int) {
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 20}}
	for i := range 4 {
		propose(t, ledger, gpus(orbit.NodeID(fmt.Sprint("n", i)), []string{"fast", "slow"}[i%2], 2+2*(i%3), orbit.DeviceSet(i%3)))
	}
	empty, err := ledger.Snapshot(t.Context())
	require.NoError(t, err)
	var pools []*claim.Pool
	var running, crowd sync.WaitGroup
	for _, spec := range deviceSpecs {
		p := &claim.Pool{Source: &claim.LedgerSource{Ledger: ledger, Spec: spec}}
		pools = append(pools, p)
		running.Go(func() { assert.NoError(t, p.Run(context.Background())) })
	}
	for i, p := range pools {
		for range 3 {
			crowd.Go(func() { raceForDevices(t, ledger, p, deviceSpecs[i], rounds) })
		}
	}
	crowd.Go(func() { placeAtRandom(t, ledger, rounds) })
	crowd.Wait()
	changes, err := ledger.Changes(t.Context(), empty.Revision())
	require.NoError(t, err)
	requireNeverOver(t, empty, changes)
	fillUp(t, ledger, pools)
	for _, p := range pools {
		p.Shutdown()
	}
	running.Wait()
}

// raceForDevices claims and returns slots, and checks what it gets. In the bubble time passes only while everybody
// waits, so a claim that ends by its context was forgotten: the pools' next poll would be later.
func raceForDevices(t *testing.T, ledger orbit.Ledger, p *claim.Pool, spec *orbit.Spec, rounds int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
	defer cancel()
	for range rounds {
		slot, err := p.Claim(ctx)
		if !assert.NoError(t, err) {
			return
		}
		state, _ := ledger.Snapshot(context.Background())
		c, n := state.Capsule(slot.Capsule), state.Node(orbit.NodeID(slot.Name)).Node
		assert.Equal(t, n.ID, c.Node)
		assert.Equal(t, slot.Devices, c.Devices)
		assert.Equal(t, spec.Devices.Count, slot.Devices.Len())
		assert.Zero(t, slot.Devices&n.Devices.Unhealthy)
		assert.NoError(t, p.Source.Return(context.Background(), slot))
	}
}

// placeAtRandom places capsules on random instances and releases them.
func placeAtRandom(t *testing.T, ledger orbit.Ledger, rounds int) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 4 * rounds {
		id, spec := orbit.CapsuleID(fmt.Sprint("theirs", i)), wantsGPUs(1, 100+r.IntN(900))
		place := orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("n", r.IntN(4))), Devices: 1 << r.IntN(6)}
		submit := orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}
		_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{submit, place}})
		if err == nil {
			propose(t, ledger, orbit.Release{Capsule: id, Final: true})
			continue
		}
		assert.True(t, errors.Is(err, orbit.ErrConflict) || errors.Is(err, orbit.ErrInfeasible), "%v", err)
	}
}

// requireNeverOver replays the history change by change and counts the use of every instance.
func requireNeverOver(t *testing.T, state *orbit.State, changes []orbit.Change) {
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision {
			n++
		}
		touched := changes[:n]
		var err error
		state, err = state.Apply(touched)
		require.NoError(t, err)
		for i := range touched {
			if touched[i].Node != "" {
				requireNotOver(t, state, touched[i].Node)
			}
		}
		changes = changes[n:]
	}
}

func requireNotOver(t *testing.T, state *orbit.State, id orbit.NodeID) {
	used, slots := use(state, id)
	node := state.Node(id).Node
	require.LessOrEqual(t, slots, node.Capacity[orbit.Slots])
	for i, milli := range used {
		require.LessOrEqual(t, milli, 1000, "device %d of %s at revision %d", i, id, state.Revision())
		require.True(t, milli == 0 || i < node.Devices.Count)
	}
}

// fillUp asks for more than there is. At the end nothing that waits would fit.
func fillUp(t *testing.T, ledger orbit.Ledger, pools []*claim.Pool) {
	c := make(chan claim.Result, 1000)
	for range 40 {
		for _, p := range pools {
			require.True(t, p.Enqueue(&claim.Request{Result: c}))
		}
	}
	left := func() string {
		state, err := ledger.Snapshot(context.Background())
		require.NoError(t, err)
		require.NoError(t, state.Verify())
		for n := range state.Nodes() {
			for _, spec := range deviceSpecs {
				if fits, _ := serves(state, n.Node, spec, 0); fits {
					return fmt.Sprintf("%s takes %+v", n.Node.ID, spec.Devices)
				}
			}
		}
		return ""
	}
	synctest.Wait()
	require.Empty(t, left(), "a request that fits still waits")
	for _, p := range pools {
		assert.Positive(t, p.Snapshot().QueueLen)
	}
}
