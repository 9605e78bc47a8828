package kubeorbit

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ClusterLabel is a label that every node has in the ledger, with one value, and not in the API server: by it, all nodes
// are in one domain. A pod with a claim that is ReadWriteOncePod is apart by it from all others with the claim.
const ClusterLabel = "kubeorbit.dev/cluster"

// noValue stands for an empty value of a label. A level has no domain that is empty, though Kubernetes does; and no label
// of Kubernetes has this value, because values begin with a letter or a digit.
const noValue = "-"

// labelValue returns the value that a label of this value has in the ledger.
func labelValue(value string) string {
	if value == "" {
		return noValue
	}
	return value
}

// NodeOf returns the node as orbit sees it. Its capacity is what is allocatable. Accelerators (nvidia.com/gpu, amd.com/gpu,
// google.com/tpu and aws.amazon.com/neuron) are the dimensions from 4 to 7, in this order; resources other than these, CPU,
// memory, ephemeral storage and pods are extras, hugepages in pages. Engines evict and nominate for dimensions only. A node that is unschedulable has the taint that says so, if
// the node controller has not added it yet, because some pods tolerate it. The error is an *Unsayable.
//
// Labels with an empty value have the value "-", as in specs ([SpecOf]).
func NodeOf(n *corev1.Node) (orbit.Node, error) {
	out := orbit.Node{ID: orbit.NodeID(n.Name), Confirms: true, Labels: map[string]string{ClusterLabel: "all"}}
	for key, value := range n.Labels {
		out.Labels[key] = labelValue(value)
	}
	var lacks *Unsayable
	if out.Capacity, out.Extras, lacks = amounts("status.allocatable", n.Status.Allocatable); lacks != nil {
		return orbit.Node{}, lacks
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, orbit.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	cordon := orbit.Taint{Key: corev1.TaintNodeUnschedulable, Effect: string(corev1.TaintEffectNoSchedule)}
	if n.Spec.Unschedulable && !slices.Contains(out.Taints, cordon) {
		out.Taints = append(out.Taints, cordon)
	}
	if len(out.Taints) > mostTaints {
		return orbit.Node{}, &Unsayable{"spec.taints", fmt.Sprintf("there are %d, and there can be %d", len(out.Taints), mostTaints)}
	}
	return out, nil
}

// dimensions names what orbit counts in each dimension of [orbit.Resources].
var dimensions = [orbit.Dimensions]string{
	orbit.CPU: string(corev1.ResourceCPU), orbit.Memory: string(corev1.ResourceMemory), orbit.Disk: string(corev1.ResourceEphemeralStorage),
	orbit.Slots: string(corev1.ResourcePods), 4: "nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "aws.amazon.com/neuron",
}

// The limits of orbit: rules and extras of one kind, groups of a spec, taints or tolerations, and the largest amount of
// an extra.
const (
	mostRules  = 16
	mostGroups = 16
	mostTaints = 64
	mostExtra  = math.MaxInt >> 24
)

// amounts divides a list of resources into the dimensions of orbit and the extras; those that are zero are left out.
// The extras are returned, as many as there can be, also with an error.
func amounts(field string, list corev1.ResourceList) (main orbit.Resources, extras []orbit.Extra, lacks *Unsayable) {
	for name, quantity := range list {
		d := slices.Index(dimensions[:], string(name))
		switch {
		case d == orbit.CPU:
			main[d] = max(0, quantity.MilliValue())
		case d >= 0:
			main[d] = max(0, quantity.Value())
		default:
			if amount := extraAmount(name, quantity); amount > 0 {
				extras = append(extras, orbit.Extra{Name: string(name), Amount: amount})
			}
		}
	}
	slices.SortFunc(extras, func(a, b orbit.Extra) int { return strings.Compare(a.Name, b.Name) })
	for i := range extras {
		if extras[i].Amount > mostExtra {
			lacks = &Unsayable{field, fmt.Sprintf("%d of %s, and there can be %d", extras[i].Amount, extras[i].Name, int64(mostExtra))}
			extras[i].Amount = mostExtra
		}
	}
	if len(extras) > mostRules {
		lacks = &Unsayable{field, fmt.Sprintf("there are %d resources besides those that each node has, and there can be %d", len(extras), mostRules)}
		extras = extras[:mostRules]
	}
	return main, extras, lacks
}

// extraAmount returns an amount of an extended resource, or the number of hugepages: in bytes, those of a large machine
// are more than an extra can be.
func extraAmount(name corev1.ResourceName, quantity resource.Quantity) int64 {
	amount := quantity.Value()
	if page, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
		if size, err := resource.ParseQuantity(page); err == nil && size.Value() > 0 {
			return amount / size.Value()
		}
	}
	return amount
}
