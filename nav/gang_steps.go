package nav

import (
	"math"

	"github.com/orbitsched/orbit/internal/seats"
)

// How the gangs of a plan share its steps of search. Gangs for which earlier searches have found nothing would mostly
// find nothing again. In a fixed order some of them could use up the steps of every plan, and no other gang would ever
// be searched for. So they take at most half of the steps while other gangs need them, and take turns (shareCost).

// gangTry is the last search for a gang, or for the gangs of a demand, that has found nothing: the number of its plan,
// 0 if there was none, and the most steps that such a search has taken.
type gangTry struct {
	plan  uint64
	steps int
}

// gangSteps are the steps of search of one plan.
type gangSteps struct {
	// How many one gang may take, all gangs together, and how many are left.
	each, most, left int
	// What the gang that is planned now may take, and what it was given.
	budget seats.Budget
	given  int
	// Which failed searches may be made again, and how many gangs that have not failed are still to be searched for.
	again  map[*gangTry]bool
	others int
}

// gangsSearched is for how many gangs one plan may make searches of full length.
const gangsSearched = 50

func (s *gangSteps) begin(each int) {
	s.each = min(each, math.MaxInt/gangsSearched)
	s.most = gangsSearched * s.each
	s.left = s.most
}

// reserved returns how many steps are kept for gangs that have not failed.
func (s *gangSteps) reserved() int { return min(gangsSearched/2, s.others) * s.each }

// taken returns how many steps the plan has taken.
func (s *gangSteps) taken() int { return s.most - s.left }

// shareSteps divides the steps of the plan between the gangs for which it may search.
func (r *gangPass) shareSteps(gangs []*pendingGang) {
	var tries []*gangTry
	var past []pastTry
	seen := map[*gangTry]bool{}
	for _, m := range gangs {
		switch r.examine(m); {
		case !m.due:
		case !m.hasFailed():
			r.steps.others++
		case !seen[m.last]: // gangs of one demand share the answer
			seen[m.last] = true
			tries, past = append(tries, m.last), append(past, pastTry{m.last.plan, m.last.steps})
		}
	}
	again, _ := shareCost(past, r.steps.most-r.steps.reserved())
	r.steps.again = map[*gangTry]bool{}
	for i, t := range tries {
		r.steps.again[t] = again[i]
	}
}

// examine finds out whether the plan may search for a gang, and what became of the last search.
func (r *gangPass) examine(m *pendingGang) {
	if m.examined = true; m.fault != nil {
		return
	}
	w := r.waiting(m)
	m.due = m.state.Nomination.Lives() || r.overdue(m) || w == nil || w.seen != r.markOf(m)
	if m.due {
		m.last = r.lastTry(m)
	}
}

// hasFailed reports whether an earlier search for a gang, or for another one with the same demand, has found nothing.
func (m *pendingGang) hasFailed() bool { return m.last != nil && m.last.plan > 0 }

// lastTry returns the record of the last failed search; nil if there is no record of the gang.
func (r *gangPass) lastTry(m *pendingGang) *gangTry {
	if d := r.demand(m); d != nil {
		return &d.tried
	}
	if w := r.waiting(m); w != nil {
		return &w.tried
	}
	return nil
}

// allot gives a gang the steps that it may take in this plan.
func (r *gangPass) allot(m *pendingGang) {
	s := &r.steps
	if !m.examined { // its demand was examined for another gang
		r.examine(m)
	}
	switch {
	case !m.due || m.hasFailed() && !s.again[m.last]:
		s.given = 0
	case m.hasFailed():
		s.given = min(s.each, max(0, s.left-s.reserved()))
	default:
		s.others = max(0, s.others-1)
		s.given = min(s.each, s.left)
	}
	s.budget = seats.Budget{Ctx: r.ctx, Left: s.given}
}

// conclusive reports whether the search for the gang that is planned now would come to the same end in another plan: it
// has not run out of steps, or had as many as a gang may take.
func (r *gangPass) conclusive() bool { return !r.steps.budget.Spent || r.steps.given == r.steps.each }

// settle takes the steps of a gang off those of the plan, and records a search that has found nothing.
func (r *gangPass) settle(m *pendingGang, found bool) {
	taken := r.steps.budget.Taken
	r.steps.left -= taken
	if found || taken == 0 || !r.conclusive() || r.ctx.Err() != nil {
		return
	}
	if t := r.lastTry(m); t != nil {
		t.plan, t.steps = r.index.Plan, max(t.steps, taken)
	}
}
