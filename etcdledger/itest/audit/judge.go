package audit

import (
	"sync"

	"github.com/orbitsched/orbit"
)

// Answers collects the answers that processes have got. The zero value is empty; its methods may be called from any
// goroutine.
type Answers struct {
	mu    sync.Mutex // guards the fields below
	all   []Answer
	kinds map[Kind]int
}

// Add adds an answer.
func (a *Answers) Add(answer Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, answer)
	if a.kinds == nil {
		a.kinds = map[Kind]int{}
	}
	a.kinds[answer.Kind]++
}

// Count returns how many answers of a kind there were.
func (a *Answers) Count(k Kind) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kinds[k]
}

// Total returns how many answers there were.
func (a *Answers) Total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// CommittedAt returns the revision at which the history has a proposal; 0: it has none of this id.
func (b *Book) CommittedAt(id orbit.ProposalID) orbit.Revision { return b.commits[id] }

// Judge compares the answers with the history, and notes disagreements as faults of the book. An acknowledged commit
// must be in the history once, at its revision; it is lost if it is missing. A rejected proposal must not be in it, nor
// one that was answered as not sent, unless it had been sent before.
func (b *Book) Judge(answers *Answers) (lost int) {
	b.init()
	b.judgeWishes()
	answers.mu.Lock()
	defer answers.mu.Unlock()
	maybe := map[orbit.ProposalID]bool{}
	for _, a := range answers.all {
		if a.Kind == Unknown {
			maybe[a.ID] = true
		}
	}
	for _, a := range answers.all {
		at, there := b.commits[a.ID]
		switch a.Kind {
		case Committed:
			if !there {
				lost++
				b.fault("proposal %v was answered as committed at revision %d, and is not in the history", a.ID, a.Revision)
			} else if at != a.Revision {
				b.fault("proposal %v was answered as committed at revision %d; the history has it at %d", a.ID, a.Revision, at)
			}
		case Conflict, Infeasible, Invalid:
			if there {
				b.fault("proposal %v was answered with %s; the history has it at %d", a.ID, a.Kind, at)
			}
		case Unavailable, Other:
			if there && !maybe[a.ID] {
				b.fault("proposal %v was answered as not sent (%s); the history has it at %d", a.ID, a.Kind, at)
			}
		}
	}
	return lost
}
