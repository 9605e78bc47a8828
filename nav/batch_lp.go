package nav

import "context"

// simplex solves small linear programs: the most of c·x where A·x <= b and x >= 0, with b >= 0. It keeps the dense
// tableau, which is as fast as anything for some hundred rows.
//
//	rows[i]  A | slacks | b      for every constraint
//	rows[m]  -c | 0 | 0          at the end: reduced costs | prices | value
type simplex struct {
	rows [][]float64
	// The variable that each row stands for; from vars on they are slacks.
	basis []int
	vars  int
}

// tiny is what counts as 0 among numbers of the order of 1.
const tiny = 1e-9

// newSimplex makes a program with that many constraints and variables, all coefficients 0 and all of b 1.
func newSimplex(constraints, vars int) *simplex {
	s := &simplex{vars: vars, rows: make([][]float64, constraints+1), basis: make([]int, constraints)}
	width := vars + constraints + 1
	cells := make([]float64, width*len(s.rows))
	for i := range s.rows {
		s.rows[i] = cells[i*width : (i+1)*width]
	}
	for i := range s.basis {
		s.basis[i] = vars + i
		s.rows[i][vars+i], s.rows[i][width-1] = 1, 1
	}
	return s
}

// solve pivots until nothing is to be gained, at most so many times and until ctx ends. It reports whether it got
// there; prices and solution are those of where it stopped.
func (s *simplex) solve(ctx context.Context, pivots int) bool {
	for range pivots {
		if ctx.Err() != nil {
			return false
		}
		enter := s.entering()
		if enter < 0 {
			return true
		}
		leave := s.leaving(enter)
		if leave < 0 {
			return false // it has no bound, which programs of this package all have
		}
		s.pivot(leave, enter)
	}
	return false
}

// entering returns the variable that gains most, -1 if none does.
func (s *simplex) entering() int {
	costs, best, low := s.rows[len(s.basis)], -1, -tiny
	for j, cost := range costs[:len(costs)-1] {
		if cost < low {
			best, low = j, cost
		}
	}
	return best
}

// leaving returns the row that runs out first, of equals the one of the lowest variable, so that a program does not
// go round in circles.
func (s *simplex) leaving(enter int) int {
	best, least := -1, 0.0
	for i, of := range s.basis {
		row := s.rows[i]
		if row[enter] <= tiny {
			continue
		}
		ratio := row[len(row)-1] / row[enter]
		if best < 0 || ratio < least || (ratio == least && of < s.basis[best]) {
			best, least = i, ratio
		}
	}
	return best
}

// pivot lets a variable into the basis in place of that of a row.
func (s *simplex) pivot(leave, enter int) {
	chosen := s.rows[leave]
	for j, by := 0, chosen[enter]; j < len(chosen); j++ {
		chosen[j] /= by
	}
	for i, row := range s.rows {
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
	s.basis[leave] = enter
}

// prices returns what one unit more of each constraint is worth, never less than 0.
func (s *simplex) prices() []float64 {
	out := make([]float64, len(s.basis))
	for i := range out {
		out[i] = max(s.rows[len(s.basis)][s.vars+i], 0)
	}
	return out
}

// solution returns the variables.
func (s *simplex) solution() []float64 {
	out := make([]float64, s.vars)
	for i, of := range s.basis {
		if of < s.vars {
			out[of] = s.rows[i][len(s.rows[i])-1]
		}
	}
	return out
}
