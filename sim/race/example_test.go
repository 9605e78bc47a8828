package race_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim/race"
)

// Two schedulers plan for a while to use the last free capacity of one node. The one that finishes first gets it.
func ExampleConfig() {
	services := func() orbit.Navigator { return &nav.Services{} }
	task := &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 3000}}}
	race := race.Config{
		Nodes: []orbit.Node{{ID: "n1", Capacity: orbit.Resources{orbit.CPU: 4000}}},
		Schedulers: []race.Scheduler{
			{Name: "slow", Navigator: services, JobTime: 2 * time.Second},
			{Name: "quick", Navigator: services, JobTime: time.Second},
		},
		Jobs: []race.Job{
			{Owner: "slow", Spec: task, Tasks: 1},
			{Owner: "quick", Spec: task, Tasks: 1, Lasts: time.Minute},
		},
	}
	res := race.Run(1)
	for line := range strings.Lines(res.History) {
		if strings.Contains(line, "proposes") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	slow := res.Schedulers[0]
	fmt.Printf("slow: %d decisions for a job, %v of %v busy\n", slow.Decisions, slow.Busy, slow.Elapsed)
	// Output:
	// 1s  quick    proposes: j2-1 on n1: committed at 4
	// 2s  slow     proposes: j1-1 on n1: orbit: conflict: bet orbit.NodeFreeOf: node "n1" is short: wants 3 cores, 1 free; changed at revision 4; plan again on a view at 4 or later
	// 1m3s  slow     proposes: j1-1 on n1: committed at 6
	// slow: 3 decisions for a job, 6s of 1m3s busy
}

// Hunting looks for a seed under which something breaks. What it returns tells the shortest story of it that was
// found.
func ExampleConfig_Hunt() {
	race := race.Config{
		Nodes:      []orbit.Node{{ID: "n1", Capacity: orbit.Resources{orbit.CPU: 4000}}, {ID: "n2", Capacity: orbit.Resources{orbit.CPU: 4000}}},
		Schedulers: []race.Scheduler{{Name: "s", Navigator: func() orbit.Navigator { return &nav.Services{} }, JobTime: time.Second}},
		Jobs:       []race.Job{{Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000}}}, Tasks: 6}},
		Faults:     race.Faults{Delay: 0.3, Crash: 0.02, Unknown: 0.1, Late: 0.1, Until: 10 * time.Second},
		Bound:      200,
		Command:    "go test ./mine -run '^TestRace$' -seed %d",
	}
	if failed := race.Hunt(1, 50); failed != nil {
		fmt.Println(failed.Story())
	} else {
		fmt.Println("50 seeds, no promise broken")
	}
	// Output:
	// 50 seeds, no promise broken
}
