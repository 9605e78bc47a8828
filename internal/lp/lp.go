// Package lp solves small linear programs.
package lp

import "context"

// tiny is the size up to which a number counts as 0, given that coefficients are of the order of 1.
const tiny = 1e-9

// Maximize returns the x >= 0 for which gains·x is largest while rows·x <= 1. It also returns the duals: the gain from
// one unit more on the right side of each row, never less than 0. No coefficient of a row may be below 0, and
// coefficients should be of the order of 1. Maximize stops early if the program is unbounded, if ctx ends, or after the
// given number of pivots. Then x is feasible but may not be the best, the duals may not be those of the best x, and
// optimal is false.
func Maximize(ctx context.Context, gains []float64, rows [][]float64, pivots int) (x, duals []float64, optimal bool) {
	t := newTableau(gains, rows)
	for range pivots {
		if ctx.Err() != nil {
			break
		}
		enter := t.entering()
		if optimal = enter < 0; optimal {
			break
		}
		leave := t.leaving(enter)
		if leave < 0 {
			break
		}
		t.pivot(leave, enter)
	}
	return t.solution(), t.duals(), optimal
}

// tableau is the dense tableau of the simplex method. For up to some hundred rows no other method is faster.
//
//	rows[i]  A | slacks | 1      for every constraint
//	rows[m]  -c | 0 | 0          at the end: reduced costs | duals | value
type tableau struct {
	rows [][]float64
	// The basic variable of each row. Numbers from vars on are slacks.
	basis []int
	vars  int
}

func newTableau(gains []float64, rows [][]float64) *tableau {
	constraints, vars := len(rows), len(gains)
	t := &tableau{vars: vars, rows: make([][]float64, constraints+1), basis: make([]int, constraints)}
	width := vars + constraints + 1
	cells := make([]float64, width*len(t.rows))
	for i := range t.rows {
		t.rows[i] = cells[i*width : (i+1)*width]
	}
	for i, row := range rows {
		copy(t.rows[i], row)
		t.rows[i][vars+i], t.rows[i][width-1] = 1, 1
		t.basis[i] = vars + i
	}
	for j, gain := range gains {
		t.rows[constraints][j] = -gain
	}
	return t
}

// entering returns the variable that gains most per unit; -1: none gains.
func (t *tableau) entering() int {
	costs, best, low := t.rows[len(t.basis)], -1, -tiny
	for j, cost := range costs[:len(costs)-1] {
		if cost < low {
			best, low = j, cost
		}
	}
	return best
}

// leaving returns the row that limits the entering variable most; -1: none limits it. Between equal rows it takes the
// one with the lowest variable, so that the method does not cycle.
func (t *tableau) leaving(enter int) int {
	best, least := -1, 0.0
	for i, variable := range t.basis {
		row := t.rows[i]
		if row[enter] <= tiny {
			continue
		}
		ratio := row[len(row)-1] / row[enter]
		if best < 0 || ratio < least || ratio == least && variable < t.basis[best] {
			best, least = i, ratio
		}
	}
	return best
}

// pivot makes a variable basic in a row, in place of the basic variable there.
func (t *tableau) pivot(leave, enter int) {
	chosen := t.rows[leave]
	for j, by := 0, chosen[enter]; j < len(chosen); j++ {
		chosen[j] /= by
	}
	for i, row := range t.rows {
		by := row[enter]
		if i == leave || by == 0 {
			continue
		}
		for j, v := range chosen {
			if v != 0 {
				row[j] -= by * v
			}
		}
	}
	t.basis[leave] = enter
}

func (t *tableau) solution() []float64 {
	x := make([]float64, t.vars)
	for i, variable := range t.basis {
		if variable < t.vars {
			x[variable] = t.rows[i][len(t.rows[i])-1]
		}
	}
	return x
}

func (t *tableau) duals() []float64 {
	out := make([]float64, len(t.basis))
	for i := range out {
		out[i] = max(t.rows[len(t.basis)][t.vars+i], 0)
	}
	return out
}
