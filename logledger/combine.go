package logledger

import (
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file has how processes take turns. A plain race for the next index starves who is further away from the store. So
// while a log is in use, the ledger that has appended the newest entry appends for all: the others post their proposals,
// which needs no race, and it judges the posts that wait, oldest first, before its own proposals, in one entry. (Flat
// combining does the same with the threads of one machine: Hendler et al., SPAA 2010.) When it has nothing to append and
// others have, they take over: a ledger whose post is not settled in time appends by itself, with the posts of all.
//
// No post is passed by more than one entry of each other ledger, because an append returns the posts that wait, and the next
// entry of the same ledger has them. And the ledger that appends waits a moment for the posts of those whose posts it has
// just settled, so that each of them has its group in each entry, as it has itself.

// combiner is what a writer knows about the posts in the log.
type combiner struct {
	// posts are the posts that wait.
	posts []Post
	// newestOwn says that this ledger has appended the newest entry, newestAt when another ledger's entry was last applied.
	newestOwn bool
	newestAt  time.Time
	// posted is the post of this ledger that is not settled; nil: none. It is appended by this ledger itself if it is not
	// settled at patient.
	posted  *posted
	patient time.Time
	// number counts the posts of this ledger.
	postNumber uint64
	// expected are the ledgers whose posts were settled by the last entry, and which may post again: until gather.
	expected map[WriterID]bool
	gather   time.Time
}

// posted is a post of this ledger.
type posted struct {
	id PostID
	// of are the proposals in the post, in order.
	of []postedProposal
}

// postedProposal is a proposal of a run.
type postedProposal struct {
	run *run
	at  int
}

const (
	// hotFor is how long after an entry of another ledger this one posts and does not race.
	hotFor = 25 * time.Millisecond
	// leastPatience is how long a ledger waits at least for others to settle its post.
	leastPatience = 10 * time.Millisecond
	// mostGather is how long a ledger waits at most for the posts of others.
	mostGather = 5 * time.Millisecond
	// postProposals and postBytes bound a post: the proposals after those wait for the next one.
	postProposals = 8192
	postBytes     = 1 << 19
)

// shouldPost reports whether this ledger posts its proposals and does not append them by itself.
func (l *Ledger) shouldPost() bool {
	return l.poster != nil && !l.w.newestOwn && l.w.posted == nil && time.Since(l.w.newestAt) < hotFor && l.w.retry.IsZero()
}

// post stores the proposals of the open group as a post. It reports false if they change nothing.
func (l *Ledger) post() bool {
	l.w.postNumber++
	p := &posted{id: PostID{l.self, l.w.postNumber}}
	data, err := l.openPost(p)
	if len(p.of) == 0 {
		return false
	}
	if err == nil {
		start := time.Now()
		err = l.poster.Post(l.life, Post{p.id, data})
		l.w.took = max(l.w.took, time.Since(start))
	}
	l.w.posted, l.w.patient = p, time.Now()
	if err == nil {
		l.stats.posts.Add(1)
		l.w.patient = l.w.patient.Add(max(leastPatience, 4*l.w.took))
	}
	return true
}

// openPost encodes the proposals of the open group, or its first ones. A proposal without an id gets one: should it be in
// the log by this ledger's own hand before the post arrives, the post has no effect.
func (l *Ledger) openPost(p *posted) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stale {
		l.rejudge(nil)
	}
	if len(l.open.changes) == 0 {
		return nil, nil
	}
	l.stale = true // what arrives now is judged when the post is settled
	var list []*orbit.Proposal
	for _, r := range l.open.runs {
		if len(list) >= postProposals {
			break
		}
		r.keep()
		for i := range r.proposals {
			if r.settled != nil && r.settled[i] {
				continue
			}
			if r.proposals[i].ID.IsZero() {
				r.proposals[i].ID = orbit.NewProposalID()
			}
			list, p.of = append(list, &r.proposals[i]), append(p.of, postedProposal{r, i})
		}
	}
	return encodePost(list)
}

// othersPosts returns the posts of other ledgers that this version can read.
func (l *Ledger) othersPosts() (list []judgedPost) {
	for _, p := range l.w.posts {
		if p.Writer == l.self {
			continue
		}
		if proposals, err := decodePost(p.Data); err == nil {
			list = append(list, judgedPost{p.PostID, proposals})
		}
	}
	return list
}

// judgedPost is a post and the proposals in it.
type judgedPost struct {
	id        PostID
	proposals []orbit.Proposal
}

// judgePosts judges the proposals of others, and adds their changes to the open group. It requires mu.
func (l *Ledger) judgePosts(posts []judgedPost) (settled []Settlement) {
	for _, p := range posts {
		s := Settlement{Post: p.id, Revisions: make([]orbit.Revision, len(p.proposals))}
		out, changes := l.judge.Commit(p.proposals)
		for i := range out {
			s.Revisions[i] = out[i].Revision
		}
		l.open.changes = append(l.open.changes, changes...)
		settled = append(settled, s)
	}
	return settled
}

// appended notes that an entry of this ledger is the newest, and which posts wait after it.
func (c *combiner) appended(a *attempt, posts []Post) {
	c.newestOwn = true
	c.posts = posts
	c.gather = time.Time{}
	clear(c.expected)
	for _, s := range a.entry.Settled {
		if c.expected == nil {
			c.expected = map[WriterID]bool{}
		}
		c.expected[s.Post.Writer] = true
	}
}

// gathers reports whether the next entry should wait for posts of ledgers that are likely to post soon.
func (l *Ledger) gathers() bool {
	w := &l.w
	for _, p := range w.posts {
		delete(w.expected, p.Writer)
	}
	if len(w.expected) == 0 || !w.newestOwn {
		w.gather = time.Time{}
		return false
	}
	if w.gather.IsZero() {
		w.gather = time.Now().Add(min(2*w.took, mostGather))
	}
	if time.Now().Before(w.gather) {
		return true
	}
	clear(w.expected)
	w.gather = time.Time{}
	return false
}

// settled takes over the outcomes of proposals of this ledger that another one has committed. It requires mu.
func (l *Ledger) settled(s *Settlement, at Index) {
	p := l.w.posted
	if p == nil || p.id != s.Post || len(s.Revisions) != len(p.of) {
		return
	}
	l.w.posted, l.w.patient = nil, time.Time{}
	for i, of := range p.of {
		r := of.run
		r.floor = max(r.floor, at+1)
		if s.Revisions[i] == 0 {
			continue
		}
		if r.settled == nil {
			r.settled, r.out = make([]bool, len(r.proposals)), make([]orbit.Outcome, len(r.proposals))
		}
		r.settled[of.at], r.out[of.at] = true, orbit.Outcome{Revision: s.Revisions[i]}
	}
	l.open.runs = slices.DeleteFunc(l.open.runs, func(r *run) bool {
		if r.settled == nil || slices.Contains(r.settled, false) {
			return false
		}
		close(r.done)
		return true
	})
}
