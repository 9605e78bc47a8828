package claim

import (
	"context"
	"errors"
	"time"
)

// look is what the loop knows of its listings.
type look struct {
	// The source is to be asked, as soon as it is not being asked already.
	wanted, running bool
	// There has been a new request or a conflict since it was last asked.
	stirred bool
	// The last answer was an error; the mail just taken has an answer that was none.
	failed, answered bool
	// Since slots are short, the source has been heard to have none.
	confirmed bool
	// A goroutine follows the source: what changes is told without asking.
	following bool
	// The newest version heard of.
	version uint64
}

// confirm reports whether slots are short by the source's own word, not only as far as the pool knows.
func (l *look) confirm(short bool) bool {
	l.confirmed = short && (l.confirmed || l.answered || l.following)
	return l.confirmed
}

// look asks the source, in a goroutine of its own: a listing may take its time.
func (p *Pool) look() {
	l := &p.listing
	l.wanted, l.stirred, l.running = false, false, true
	p.listings.Add(1)
	p.group.Go(func() {
		var found Listing
		guard(func() (err error) {
			ctx, cancel := context.WithTimeout(p.looking.ctx, p.set.timeout)
			defer cancel()
			found, err = p.Source.Idle(ctx)
			return err
		}, func(err error) {
			p.heard(heard{Listing: found, err: err, asked: true})
		})
	})
}

// heard hands a listing to the loop, and reports why there is none.
func (p *Pool) heard(h heard) {
	if h.err != nil && p.looking.ctx.Err() == nil {
		p.report(&Error{Kind: ErrSource, Pool: p.Name, Cause: h.err})
	}
	p.mail.post(func(m *mail) { m.listings = append(m.listings, h) })
}

// admit files a listing. Slots that are reserved stay out, unless the listing has seen what became of them. Ready
// slots that a full listing does not show are dropped: it is newer than the one that showed them, and if it
// is wrong, they come back with the next. A full listing that is older than what is known drops nothing.
func (p *Pool) admit(h *heard, now time.Time) {
	l := &p.listing
	if h.asked {
		l.running, l.failed = false, h.err != nil
	}
	if h.err != nil {
		if !h.asked { // it can not be followed any more
			l.following, l.wanted = false, true
		}
		return
	}
	l.answered = l.answered || h.asked
	whole := !h.Partial && h.Version >= l.version
	l.version = max(l.version, h.Version)
	if p.file(&h.Listing, whole) {
		p.poll.reset(now)
	}
	if f, ok := p.Source.(Follower); ok && h.asked && !l.following {
		l.following = true
		after := h.Version // h is the mail's, and will be used again
		p.group.Go(func() { p.follow(f, after) })
	}
}

// file makes slots ready, or not ready any more. It reports whether any is new.
func (p *Pool) file(l *Listing, whole bool) (fresh bool) {
	if whole {
		p.ready.begin()
		p.reservations.hide()
	}
	for i := range l.Slots {
		if !p.reservations.blocks(l.Slots[i].key(), l.Version) && p.ready.admit(l.Slots[i]) {
			fresh = true
		}
	}
	for _, name := range l.Gone {
		p.ready.drop(name)
	}
	if whole {
		p.ready.end()
	}
	return fresh
}

// followAgain is how long a source is left alone that could not be followed.
const followAgain = time.Second

// follow hands on what a source says of itself, until it fails or the pool ends. After a failure the loop is
// told only when the source has had time to recover; it then asks for a full listing, and follows from there.
func (p *Pool) follow(f Follower, after uint64) {
	guard(func() error {
		for {
			l, err := f.Follow(p.looking.ctx, after)
			if err != nil {
				return err
			}
			after = l.Version
			p.mail.post(func(m *mail) { m.listings = append(m.listings, heard{Listing: l}) })
		}
	}, func(err error) {
		if p.looking.ctx.Err() == nil {
			pause(p.looking.ctx, followAgain)
			p.heard(heard{err: errors.Join(errors.New("it can not be followed"), err)})
		}
	})
}
