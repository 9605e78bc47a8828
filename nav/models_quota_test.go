package nav_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Work that takes devices of several models, or of any, goes to a model for which there is quota, and waits for what is missing of either:
// quota for the model that is free, or room on the model for which there is quota.
func TestQuotaOfOneOfSeveralModels(t *testing.T) {
	quota := func(a, b int64) orbit.PutQueue {
		return orbit.PutQueue{Queue: orbit.Queue{ID: "q", Nominal: map[string]int64{"device/A": a * 1000, "device/B": b * 1000}}}
	}
	for name, navigator := range map[string]func() orbit.Navigator{
		"services": func() orbit.Navigator { return nav.Func((&nav.Services{}).Plan) },
		"batch":    func() orbit.Navigator { return nav.Func((&nav.Batch{}).Plan) },
		"fair":     func() orbit.Navigator { return &nav.Fair{Navigator: nav.Func((&nav.Services{}).Plan)} },
		"gang":     func() orbit.Navigator { return &nav.Gang{} },
	} {
		for _, models := range [][]string{nil, {"A", "B"}} {
			for _, then := range []string{"", "quota", "room"} {
				t.Run(fmt.Sprint(name, models, then), func(t *testing.T) {
					l := &orbit.MemoryLedger{}
					a, b := node("a", 9), node("b", 9)
					a.Node.Devices, b.Node.Devices = orbit.Devices{Model: "A", Count: 1}, orbit.Devices{Model: "B", Count: 1}
					commit(t, l, a, b, quota(0, 1))
					if then != "" { // the model for which there is quota is full
						s := gpus(1)
						commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"full"}, Spec: s}, orbit.Place{Capsule: "full", Node: "b", Devices: 1})
					}
					s := gpus(1)
					s.Queue, s.Devices.Models = "q", models
					want := orbit.NodeID("b")
					if name == "gang" {
						s.Class = orbit.GangClass
						commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{"c"}}}}})
					} else {
						commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: s})
					}
					e := &orbit.Engine{Ledger: l, Navigator: navigator()}
					settle(t, e)
					switch then {
					case "quota":
						commit(t, l, quota(1, 1))
						want = "a"
					case "room":
						commit(t, l, orbit.Release{Capsule: "full", Final: true})
					}
					settle(t, e)
					assert.Equal(t, want, snapshot(t, l).Capsule("c").Node)
				})
			}
		}
	}
}
