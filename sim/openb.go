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

// The columns without which the openb files cannot be read.
var (
	nodeColumns = []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}
	podColumns  = []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}
)

// ReadNodes reads an openb node list, as openb_node_list_gpu_node.csv: nodes with CPU, memory and devices, and
// 1001 slots each, one for every pod. It finds the columns by their names: sn, cpu_milli, memory_mib, gpu and
// model. The name is what errors, which are [*InputError], call the file.
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

// ReadPods reads an openb pod list, as openb_pod_list_default.csv. It finds the columns by their names: name,
// cpu_milli, memory_mib, num_gpu, gpu_milli, and gpu_spec and qos if the list has them. Several lists of the
// trace have not: then a pod takes any model, and is latency-sensitive. Every pod takes a slot beside what the
// list says. Its module is "openb"; its class follows qos: LS and Guaranteed are latency-sensitive, BE and
// Burstable are best effort, so that one navigator for services can own them all. The phase and the times are
// not read: at most 56 of the pods overlap in time. Nor is gpu_spec, where num_gpu is 0. The name is what
// errors, which are [*InputError], call the file.
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

// podShape is what pods that share a spec have alike.
type podShape struct {
	class       orbit.AppClass
	cpu, memory int64
	count       int
	milli       int
	models      string // "A|B"
}

// readShape takes from the current row what the spec depends on. After a fault its result means nothing.
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

// spec returns what such pods ask for.
func (s podShape) spec() *orbit.Spec {
	spec := &orbit.Spec{Module: "openb", Class: s.class}
	spec.Envelope.Reservation = orbit.Resources{orbit.CPU: s.cpu, orbit.Memory: s.memory, orbit.Slots: 1}
	spec.Devices.Count, spec.Devices.Milli = s.count, s.milli
	if s.models != "" {
		spec.Devices.Models = strings.Split(s.models, "|")
	}
	return spec
}
