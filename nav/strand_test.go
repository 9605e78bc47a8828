package nav_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// strandWorld is 200 nodes with devices among 200 without, and every class of work without devices, for half of the room
// without devices.
func strandWorld(t *testing.T, gpus int) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	for i := range 200 {
		plain, with := node(fmt.Sprintf("n%03d", 2*i), 16), node(fmt.Sprintf("n%03d", 2*i+1), 16)
		with.Node.Devices = orbit.Devices{Model: "g", Count: 8}
		commit(t, l, plain)
		commit(t, l, with)
	}
	of := func(class orbit.AppClass, devices int) *orbit.Spec {
		s := spec(2, 0)
		s.Class, s.Module = class, class.String()
		s.Devices = orbit.DeviceRequest{Count: devices, Milli: 1000 * min(devices, 1)}
		return s
	}
	for _, class := range []orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch} {
		for i := range 200 {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("%v-%d", class, i))}, Spec: of(class, 0)})
		}
		for i := range gpus {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("%v-gpu-%d", class, i))}, Spec: of(class, 4)})
		}
	}
	for i := range 25 {
		g := &orbit.Gang{ID: orbit.GangID(fmt.Sprint("gang", i))}
		role := orbit.Role{Name: "r", Min: 8, Spec: of(orbit.GangClass, 0)}
		for k := range 8 {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint(g.ID, "-", k)))
		}
		g.Roles = append(g.Roles, role)
		commit(t, l, orbit.Submit{Gang: g})
	}
	return l
}

// At size, work of every class stays off nodes with devices while others fit, so the work with devices finds all of
// these nodes whole. That is so also where more work with devices waits than there are devices.
func TestNoClassStrandsDevices(t *testing.T) {
	for _, gpus := range []int{0, 130, 200} { // 400 places of 4 devices: none, room for all, not room for all
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			l := strandWorld(t, gpus)
			p := nav.Default(l)
			for range 4 {
				for _, e := range p.Engines {
					e.Pass(t.Context())
				}
			}
			s := snapshot(t, l)
			stranded, waiting, devices, by := 0, 0, 0, map[string]int{}
			for c := range s.Capsules() {
				with := c.Placed() && s.Node(c.Node).Node.Devices.Count > 0
				switch {
				case c.Spec.Devices.Count > 0:
					devices += btoi(with)
				default:
					stranded += btoi(with)
					by[c.Spec.Module] += btoi(with)
					waiting += btoi(!c.Placed())
				}
			}
			assert.Zero(t, stranded, "without devices, on nodes with devices: %v", by)
			assert.Zero(t, waiting)
			require.Equal(t, min(3*gpus, 400), devices)
		})
	}
}
