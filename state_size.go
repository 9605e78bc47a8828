package orbit

import (
	"fmt"
	"strconv"
	"strings"
)

// TooLarge says that no node could take a capsule of the spec even if all nodes were empty, and what the largest node
// has: "no node is that large: the largest has 72 cores". It considers the nodes that meet the requirements of the spec,
// whose taints the spec tolerates and whose device model it accepts, whether they are schedulable or not. It returns ""
// if one of them is large enough, and if there is no such node. It looks at each node.
func (s *State) TooLarge(spec *Spec) string {
	if spec == nil {
		return ""
	}
	asks := s.sizesAsked(spec)
	suited := 0
	for n := range s.Nodes() {
		if !n.meets(spec) || spec.Devices.Count > 0 && !spec.Devices.Accepts(n.Node.Devices.Model) {
			continue
		}
		suited++
		enough := true
		for i := range asks {
			has := asks[i].has(n.Node)
			asks[i].most = max(asks[i].most, has)
			enough = enough && has >= asks[i].want
		}
		if enough {
			return ""
		}
	}
	if suited == 0 {
		return ""
	}
	text := "no node is that large"
	if suited < s.NodeCount() {
		text = "no node that suits it is that large"
	}
	var largest []string
	for i := range asks {
		if a := &asks[i]; a.want > a.most {
			largest = append(largest, a.text(a.most))
		}
	}
	switch len(largest) {
	case 0:
		return text + " in all that it asks for at once"
	case 1:
		return text + ": the largest has " + largest[0]
	}
	return text + ": the largest have " + strings.Join(largest, ", ")
}

// sizeAsked is one quantity that a spec asks for, how much of it a node has in all, and the most that any node has.
type sizeAsked struct {
	want, most int64
	has        func(*Node) int64
	text       func(amount int64) string
}

// sizesAsked lists what a spec asks for: dimensions, devices and extras.
func (s *State) sizesAsked(spec *Spec) (asks []sizeAsked) {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			asks = append(asks, sizeAsked{want: want, has: func(n *Node) int64 { return n.Capacity[d] },
				text: func(amount int64) string { return s.names.quantity(d, amount, false) }})
		}
	}
	if count := spec.Devices.Count; count > 0 {
		asks = append(asks, sizeAsked{want: int64(count), has: func(n *Node) int64 { return int64(n.Devices.Count) },
			text: func(amount int64) string { return plural(strconv.FormatInt(amount, 10), "device") }})
	}
	for _, x := range spec.Extras {
		asks = append(asks, sizeAsked{want: x.Amount, has: func(n *Node) int64 { return amountOf(n.Extras, x.Name) },
			text: func(amount int64) string { return fmt.Sprintf("%d of %q", amount, x.Name) }})
	}
	return asks
}
