package shard

import (
	"math"

	"github.com/orbitsched/orbit"
)

// report fills in the parts of the report that describe the state after the Step.
func (r *regrouping) report() {
	for m := range r.table.due {
		if m.open && m.in == nil {
			r.Ungrouped++
		}
	}
	r.Balanced = r.balance != nil && r.excess == 0
	if r.balance == nil {
		return
	}
	for i, g := range r.groups() {
		out := Group{Scheduler: g.name, Nodes: g.nodes}
		for _, k := range r.present {
			if off := r.off[i][k] * float64(len(r.groups())); math.Abs(off) > math.Abs(out.Off) {
				out.Off, out.Worst = off, r.quantity(k)
			}
		}
		r.Groups = append(r.Groups, out)
	}
}

// quantity returns the name of a quantity, such as "free memory".
func (r *regrouping) quantity(k int) string {
	name := "devices"
	if d := k % kinds; d < orbit.Dimensions {
		name = r.state.DimensionName(d)
	}
	if k >= kinds {
		name = "free " + name
	}
	return name
}
