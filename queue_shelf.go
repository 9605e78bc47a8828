package orbit

import "github.com/orbitsched/orbit/internal/least"

// This file has the shelves on which parked classes lie by what every node must have on which they may fit.

type shelved struct {
	shelf shelf
	item  *least.Item[*spot]
}

// shelf is a property that every node on which the class may fit has: a label, a label with its value, or a device
// model. The zero shelf stands for all nodes.
type shelf struct {
	kind       shelfKind
	key, value string
}

type shelfKind uint8

const (
	anyNode shelfKind = iota
	withLabelValue
	withLabel
	withModel
)

// maxShelves is how many shelves a class may lie on.
const maxShelves = 8

// wantVector returns the least free amounts that a node must have for a spec.
func wantVector(spec *Spec) (v least.Vector) {
	copy(v[:], spec.Envelope.Reservation[:])
	if r := &spec.Devices; r.Count > 0 {
		v[Dimensions], v[Dimensions+1] = int64(r.Count), int64(r.Milli)
	}
	return v
}

// offerVector is the most that a node has for any spec, with what is borrowed: what is overdrawn serves what asks for nothing of it.
func offerVector(n *NodeState) (v least.Vector) {
	n = n.without(func(*loan) bool { return true })
	for d, capacity := range n.Node.Capacity {
		v[d] = max(0, capacity-n.used[d])
	}
	for i := range n.Node.Devices.Count {
		if free := n.DeviceFree(i); free > 0 {
			v[Dimensions]++
			v[Dimensions+1] = max(v[Dimensions+1], int64(free))
		}
	}
	return v
}

// shelvesOf returns shelves of which every node that may help the class has at least one; none if no node may help. It
// prefers a label with a value that a requirement or the company names, because fewest nodes have it, to a label alone.
func shelvesOf(spec *Spec, near *nearby) (out []shelf) {
	if near != nil && len(near.domains) <= maxShelves {
		for domain := range near.domains {
			out = append(out, shelf{withLabelValue, near.near.Level, domain})
		}
		return out
	}
	best := maxShelves + 1
	for i := range spec.Require {
		p := &spec.Require[i]
		switch {
		case p.Op == "In" && len(p.Values) < best:
			best, out = len(p.Values), out[:0]
			for _, value := range p.Values {
				out = append(out, shelf{withLabelValue, p.Key, value})
			}
		case len(out) == 0 && p.Key != NodeKey && (p.Op == "Exists" || p.Op == "Gt" || p.Op == "Lt"):
			out = append(out, shelf{withLabel, p.Key, ""})
		}
	}
	if models := spec.Devices.Models; best > maxShelves && spec.Devices.Count > 0 && len(models) > 0 && len(models) <= maxShelves {
		out = out[:0]
		for _, model := range models {
			out = append(out, shelf{withModel, model, ""})
		}
	}
	if len(out) == 0 {
		out = append(out, shelf{})
	}
	return out
}
