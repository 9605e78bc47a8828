package race

import "github.com/orbitsched/orbit"

// judge follows the history with a state of its own, and asks it whether what was committed may have been: its
// bets, above all, which leave no trace in the books. A history that [orbit.State.Apply] refuses is judged no
// further; the books say why.
func (a *audit) judge(p *asked, changes []orbit.Change) {
	if a.err != nil || a.state == nil {
		return
	}
	if err := a.state.Check(p.Proposal); err != nil {
		a.fail("bet", "\"%s\" was committed at revision %d, and must not have been: %v", describe(&p.Proposal), changes[0].Revision, err)
		return
	}
	next, err := a.state.Apply(changes)
	if err != nil {
		a.fail("history", "revision %d does not follow: %v", changes[0].Revision, err)
		return
	}
	a.state = next
}
