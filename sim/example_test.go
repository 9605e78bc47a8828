package sim_test

import (
	"fmt"
	"strings"

	"github.com/orbitsched/orbit/sim"
)

// A fleet of machines, and capsules for it in the random order in which they would arrive.
func Example() {
	nodes := sim.Constellation(sim.Fleet{Seed: 1, Nodes: 100})
	classes := sim.Workload(sim.Mix{Seed: 1, Capsules: 2000, Classes: 10})
	capsules := sim.Expand(classes)
	sim.Shuffle(capsules, 1)
	fmt.Println(len(nodes), "nodes in racks such as", nodes[99].Labels["rack"])
	fmt.Println(len(capsules), "capsules of", len(classes), "classes")
	// Output:
	// 100 nodes in racks such as z3-b01-r02
	// 2000 capsules of 10 classes
}

// The arrivals of the openb experiment: 130% of what the devices can take.
func ExampleInflate() {
	nodes, pods := sim.OpenbLike(42, 1)
	capacity := sim.DeviceCapacity(nodes)
	arrivals, err := sim.Inflate(pods, capacity, 1.3, 42)
	if err != nil {
		fmt.Println(err)
		return
	}
	demand := int64(0)
	for _, c := range arrivals {
		demand += sim.DeviceDemand(c.Spec)
	}
	fmt.Printf("%.0f%% of %d devices\n", 100*float64(demand)/float64(capacity), capacity/1000)
	// Output:
	// 130% of 6163 devices
}

func ExampleReadPods() {
	const text = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,4000,8192,1,500,,LS,Running,0,10,0
b,4000,8192,1,1500,,LS,Running,0,10,0
`
	_, err := sim.ReadPods(strings.NewReader(text), "pods.csv")
	fmt.Println(err)
	// Output:
	// pods.csv:3: column gpu_milli: 1500 is more than 1000
}
