package orbit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// The promise of this file: whatever schedulers propose, and however they race, no commit leaves a node or a device with more on it
// than it has. Nothing here trusts the ledger's own sums. The history of commits is the only witness, and recount adds it up by hand.
//
//	go test -run NeverOversubscribed ./...
//
// in the root runs this file and the tests in nav whose names end alike: Batch by itself and Services by itself. The
// modules logledger, diskledger, pgledger and etcdledger/itest have a TestNeverOversubscribed of their own, in which
// many goroutines propose at once. They are not part of ./... of the root, so run the same command in their folders.

// gpuShare is what a capsule of this file takes of a device, in thousandths: two do not fit on one.
const gpuShare = 600

// step is one thing that a careless scheduler does: it puts a capsule or a hold on a node without a look whether there is room, or
// takes one off.
type step struct {
	kind    string // "place", "release", "hold" or "unhold"
	capsule int
	node    int
	devices orbit.DeviceSet
}

// TestNeverOversubscribed lets four careless schedulers race for a few small nodes. They look at nothing, and their proposals carry no
// bets, so only the ledger stands between them and an oversubscribed node.
func TestNeverOversubscribed(t *testing.T) {
	for count := range scale.Reach(t, "committed", "refused") {
		rapid.Check(t, func(t *rapid.T) {
			ledger := &orbit.MemoryLedger{}
			steps := drawSteps(drawCluster(t, ledger))
			var schedulers sync.WaitGroup
			var outcomes [4]map[string]int
			for i := range outcomes {
				plan := steps.Draw(t, "plan") // drawn here and not in the goroutine, so that the same seed always draws the same steps
				outcomes[i] = map[string]int{}
				schedulers.Go(func() { outcomes[i] = propose(ledger, plan) })
			}
			schedulers.Wait()
			for _, outcome := range outcomes {
				require.Zero(t, outcome["failed"], "an answer that is neither a commit nor a refusal")
				count["committed"] += outcome["committed"]
				count["refused"] += outcome["refused"]
			}
			recount(t, ledger)
		})
	}
}

// size is how many nodes and how many single capsules a cluster has.
type size struct{ nodes, capsules int }

// drawCluster puts 1 to 3 nodes into the ledger, with 1 to 8 milli-cores and up to two devices each. It submits 4 to 12
// capsules that ask for up to 4 milli-cores, and some of them for part of a device; and a gang of two members that ask
// for as much.
func drawCluster(t *rapid.T, ledger orbit.Ledger) (s size) {
	s = size{rapid.IntRange(1, 3).Draw(t, "nodes"), rapid.IntRange(4, 12).Draw(t, "capsules")}
	var do []orbit.Commitment
	for i := range s.nodes {
		n := orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: rapid.Int64Range(1, 8).Draw(t, "cores")}}
		if devices := rapid.IntRange(0, 2).Draw(t, "devices"); devices > 0 {
			n.Devices = orbit.Devices{Model: "A100", Count: devices}
		}
		do = append(do, orbit.PutNode{Node: n})
	}
	for i := range s.capsules {
		class := rapid.SampledFrom([]orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch}).Draw(t, "class")
		spec := drawSpec(t, class)
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{capsuleID(i)}, Spec: spec})
	}
	pair := orbit.Role{Name: "worker", Members: []orbit.CapsuleID{"gang-0", "gang-1"}, Spec: drawSpec(t, orbit.GangClass)}
	do = append(do, orbit.Submit{Gang: &orbit.Gang{ID: "gang", Roles: []orbit.Role{pair}}})
	_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
	return s
}

func drawSpec(t *rapid.T, class orbit.AppClass) *orbit.Spec {
	spec := &orbit.Spec{Class: class, Priority: rapid.Int32Range(0, 2).Draw(t, "priority")}
	spec.Envelope.Reservation[orbit.CPU] = rapid.Int64Range(0, 4).Draw(t, "asks for")
	if rapid.IntRange(0, 2).Draw(t, "wants a device") == 0 {
		spec.Devices = orbit.DeviceRequest{Count: 1, Milli: gpuShare}
	}
	return spec
}

// drawSteps returns a generator of what a careless scheduler does.
func drawSteps(s size) *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			rapid.SampledFrom([]string{"place", "place", "place", "release", "hold", "unhold"}).Draw(t, "kind"),
			rapid.IntRange(0, s.capsules-1).Draw(t, "capsule"), rapid.IntRange(0, s.nodes-1).Draw(t, "node"),
			orbit.DeviceSet(rapid.SampledFrom([]int{0, 0b01, 0b10}).Draw(t, "devices")),
		}
	}), 5, 20)
}

// propose sends each step as a proposal of its own and counts the answers.
func propose(ledger orbit.Ledger, plan []step) map[string]int {
	outcomes := map[string]int{}
	for _, s := range plan {
		hold := orbit.HoldID(fmt.Sprint("h", s.node))
		var do orbit.Commitment
		switch s.kind {
		case "place":
			do = orbit.Place{Capsule: capsuleID(s.capsule), Node: nodeID(s.node), Devices: s.devices}
		case "release":
			do = orbit.Release{Capsule: capsuleID(s.capsule), Stopped: true} // it goes back to pending
		case "hold":
			do = orbit.Hold{ID: hold, Node: nodeID(s.node), Room: orbit.Resources{orbit.CPU: 2}, Ends: time.Unix(1e10, 0).UTC()}
		case "unhold":
			do = orbit.Release{Hold: hold}
		}
		_, err := ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{do}})
		switch {
		case err == nil:
			outcomes["committed"]++
		case errors.As(err, new(*orbit.Rejection)):
			outcomes["refused"]++
		default:
			outcomes["failed"]++
		}
	}
	return outcomes
}

// TestEnginesNeverOversubscribed lets three real navigators and a careless scheduler race for the same nodes: services that evict work
// of lower priority, batch work and a gang, each in an engine of its own.
func TestEnginesNeverOversubscribed(t *testing.T) {
	for count := range scale.Reach(t, "committed", "refused", "placed by engines", "evicted") {
		rapid.Check(t, func(t *rapid.T) {
			ledger := &orbit.MemoryLedger{}
			steps := drawSteps(drawCluster(t, ledger))
			engines := []*orbit.Engine{
				{Name: "services", Ledger: ledger, Navigator: &nav.Preempting{Navigator: &nav.Services{}}},
				{Name: "batch", Ledger: ledger, Navigator: &nav.Batch{}},
				{Name: "gangs", Ledger: ledger, Navigator: &nav.Gang{}},
			}
			var careless map[string]int
			plan := steps.Draw(t, "plan")
			placed := make([]int, len(engines))
			var all sync.WaitGroup
			all.Go(func() { careless = propose(ledger, plan) })
			for i, engine := range engines {
				all.Go(func() {
					for range 5 {
						placed[i] += engine.Pass(context.Background()).Committed
					}
				})
			}
			all.Wait()
			require.Zero(t, careless["failed"], "an answer that is neither a commit nor a refusal")
			count["committed"] += careless["committed"]
			count["refused"] += careless["refused"]
			count["placed by engines"] += placed[0] + placed[1] + placed[2]
			count["evicted"] += recount(t, ledger)
		})
	}
}

// account is what a recount knows of a node: what it has, and what each capsule and each hold on it takes.
type account struct {
	has  orbit.Node
	uses map[string]use
}

type use struct {
	room    orbit.Resources
	devices orbit.DeviceSet
}

// recount adds up the whole history of a ledger, commit by commit, and fails at the first commit after which a node or a device has
// more on it than it has. It returns how many capsules were evicted.
func recount(t *rapid.T, ledger orbit.Ledger) (evicted int) {
	changes, err := ledger.Changes(context.Background(), 0)
	require.NoError(t, err)
	nodes, specs, holds := map[orbit.NodeID]*account{}, map[orbit.CapsuleID]*orbit.Spec{}, map[orbit.HoldID]orbit.NodeID{}
	for i, c := range changes {
		switch do := c.Do.(type) {
		case orbit.PutNode:
			nodes[do.Node.ID] = &account{has: do.Node, uses: map[string]use{}}
		case orbit.Submit:
			for _, id := range do.IDs {
				specs[id] = do.Spec
			}
			if do.Gang != nil {
				for _, id := range do.Gang.Roles[0].Members {
					specs[id] = do.Gang.Roles[0].Spec
				}
			}
		case orbit.Place:
			for _, n := range nodes {
				require.NotContains(t, n.uses, "capsule "+string(do.Capsule), "%s is placed twice", do.Capsule)
			}
			nodes[do.Node].uses["capsule "+string(do.Capsule)] = use{specs[do.Capsule].Envelope.Reservation, do.Devices}
		case orbit.Evict:
			delete(nodes[c.Node].uses, "capsule "+string(do.Capsule))
			evicted++
		case orbit.Hold:
			nodes[do.Node].uses["hold "+string(do.ID)] = use{do.Room, 0}
			holds[do.ID] = do.Node
		case orbit.Release:
			if do.Hold != "" {
				delete(nodes[holds[do.Hold]].uses, "hold "+string(do.Hold))
			} else {
				delete(nodes[c.Node].uses, "capsule "+string(do.Capsule))
			}
		case orbit.Nominate: // claims room for pending work, and takes none
		default:
			t.Fatalf("the recount does not know %T", do)
		}
		if last := i+1 == len(changes) || changes[i+1].Revision != c.Revision; last {
			for _, n := range nodes {
				n.check(t, c.Revision)
			}
		}
	}
	return evicted
}

// check adds up what is on a node.
func (a *account) check(t *rapid.T, at orbit.Revision) {
	var used orbit.Resources
	var devices [16]int
	for _, u := range a.uses {
		for d := range used {
			used[d] += u.room[d]
		}
		for i := range devices {
			if u.devices.Has(i) {
				devices[i] += gpuShare
			}
		}
	}
	for d := range used {
		require.LessOrEqual(t, used[d], a.has.Capacity[d], "dimension %d of %s at revision %d", d, a.has.ID, at)
	}
	for i, milli := range devices {
		require.LessOrEqual(t, milli, 1000, "device %d of %s at revision %d", i, a.has.ID, at)
		require.True(t, milli == 0 || i < a.has.Devices.Count, "%s has no device %d", a.has.ID, i)
	}
}

func nodeID(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprint("n", i)) }

func capsuleID(i int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprint("c", i)) }
