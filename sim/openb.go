package sim

import (
	"io"
	"math"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// The limits of the openb experiment.
const (
	openbPodsPerNode = 1001
	openbPodDevices  = 8
	deviceMilli      = 1000
)

// The columns that the openb files must have. The first column identifies a row.
var (
	nodeColumns = []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}
	podColumns  = []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}
)

// ReadNodes reads an openb node list such as openb_node_list_gpu_node.csv: nodes with CPU, memory and devices. Each
// node gets 1001 slots, and each pod takes one. ReadNodes finds the columns by their names: sn, cpu_milli, memory_mib,
// gpu and model. Errors are [*InputError], with name as the name of the file.
func ReadNodes(r io.Reader, name string) ([]orbit.Node, error) {
	var nodes []orbit.Node
	t := openTable(r, name, nodeColumns)
	for t.next() {
		n := orbit.Node{ID: orbit.NodeID(t.text("sn"))}
		n.Capacity[orbit.CPU] = t.number("cpu_milli", math.MaxInt64)
		n.Capacity[orbit.Memory] = t.mebibytes("memory_mib")
		n.Capacity[orbit.Slots] = openbPodsPerNode
		if n.Devices.Count = int(t.number("gpu", orbit.MaxDevices)); n.Devices.Count > 0 {
			n.Devices.Model = t.text("model")
		}
		nodes = append(nodes, n)
	}
	if err := t.end(); err != nil {
		return nil, err
	}
	return nodes, nil
}

// ReadPods reads an openb pod list such as openb_pod_list_default.csv. It finds the columns by their names: name,
// cpu_milli, memory_mib, num_gpu, gpu_milli, and gpu_spec and qos if the list has them. Several lists of the trace lack
// these two: then a pod takes devices of any model, and is latency-sensitive. Every pod takes one slot beside the
// resources in the list. Its module is "openb". Its class follows qos: LS and Guaranteed become latency-sensitive, BE
// and Burstable best effort, so that one navigator for services can own all pods. The phase and the times are not read,
// because at most 56 of the pods overlap in time. A gpu_spec is ignored if num_gpu is 0. Errors are [*InputError], with
// name as the name of the file.
func ReadPods(r io.Reader, name string) ([]Capsule, error) {
	var pods []Capsule
	specs := map[podShape]*orbit.Spec{}
	t := openTable(r, name, podColumns)
	for t.next() {
		shape := readShape(t)
		if specs[shape] == nil {
			specs[shape] = shape.spec()
		}
		pods = append(pods, Capsule{ID: orbit.CapsuleID(t.text("name")), Spec: specs[shape]})
	}
	if err := t.end(); err != nil {
		return nil, err
	}
	return pods, nil
}

// podShape has the values of a pod on which its spec depends. Pods with the same shape share one spec.
type podShape struct {
	class       orbit.AppClass
	cpu, memory int64
	count       int
	milli       int
	models      string // "A|B"
}

// readShape reads the shape of the pod in the current row. If the table has a fault afterwards, the result is invalid.
func readShape(t *table) podShape {
	s := podShape{
		cpu:    t.number("cpu_milli", math.MaxInt64),
		memory: t.mebibytes("memory_mib"),
		count:  int(t.number("num_gpu", openbPodDevices)),
		milli:  int(t.number("gpu_milli", deviceMilli)),
	}
	switch {
	case s.count > 0 && s.milli == 0:
		t.fail("gpu_milli", "is 0, but num_gpu is %d; want 1 to %d", s.count, deviceMilli)
	case s.count == 0 && s.milli > 0:
		t.fail("gpu_milli", "is %d, but num_gpu is 0; want 0", s.milli)
	case s.count > 0:
		s.models = strings.Clone(t.field("gpu_spec"))
	}
	if s.models != "" && slices.Contains(strings.Split(s.models, "|"), "") {
		t.fail("gpu_spec", `%q names an empty model; want "A|B", or nothing for any`, s.models)
	}
	switch qos := t.field("qos"); {
	case qos == "LS", qos == "Guaranteed", !t.has("qos"):
		s.class = orbit.LatencySensitive
	case qos == "BE", qos == "Burstable":
		s.class = orbit.BestEffort
	default:
		t.fail("qos", "%q is unknown; want LS, BE, Burstable or Guaranteed", qos)
	}
	return s
}

// spec returns the spec of pods with this shape.
func (s podShape) spec() *orbit.Spec {
	spec := &orbit.Spec{Module: "openb", Class: s.class}
	spec.Envelope.Reservation = orbit.Resources{orbit.CPU: s.cpu, orbit.Memory: s.memory, orbit.Slots: 1}
	spec.Devices.Count, spec.Devices.Milli = s.count, s.milli
	if s.models != "" {
		spec.Devices.Models = strings.Split(s.models, "|")
	}
	return spec
}
