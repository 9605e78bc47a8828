package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/orbitsched/orbit"
)

// VersionLabel is the label of a member that has its version.
const VersionLabel = "rollout.orbit/version"

// Service says what is wanted of a set of members that are alike. It is a value: it keeps nothing between two calls.
type Service struct {
	// Name begins the ids of the members: NAME-0, NAME-1 and so on. Required.
	Name string
	// Count is how many members there are, outside of rollouts with a surge.
	Count int
	// Spec is the spec of new members. Required, with a Group or a Module that no other capsules have, because the budget
	// counts by it, by Group if both are set.
	Spec *orbit.Spec
	// Version is the version of new members. Members of another version are replaced. It is compared, and not read, so
	// count it, or make it from what the members run.
	Version string
	// Labels are the labels of new members, besides VersionLabel.
	Labels map[string]string
	// Owner is the engine to which new members are assigned, as in [orbit.Submit].
	Owner string
	// Missing is how many members of Count may be missing, that is, not ready; 0 without a Surge means 1.
	Missing int
	// Surge is how many members more than Count there may be during a rollout.
	Surge int
}

// Status says how far a service is.
type Status struct {
	// Newest is how many members have the version that is wanted, Old how many have another one.
	Newest, Old int
	// Serving is how many members of any version are ready, Pending how many have no node.
	Serving, Pending int
	// Done reports whether all is as wanted: Count members of the version, which are ready, and no others.
	Done bool
}

// Step returns what to do now, in one proposal; nothing: the service is as wanted, or waits until a member is placed, is
// ready, or has stopped. Call it again after each change of the ledger. now is the [orbit.Submit.At] of new members.
//
// Step never releases a ready member if fewer than Count-Missing would be ready then, also where Count has become
// smaller. The error wraps [orbit.ErrInvalid]: the service cannot be, or a capsule with the id of a member has no
// VersionLabel, so it is somebody else's.
func (s *Service) Step(state *orbit.State, now time.Time) ([]orbit.Commitment, error) {
	members, err := s.members(state)
	if err != nil {
		return nil, err
	}
	t := step{Service: s, now: orbit.Instant(now.UnixNano()), mayStop: s.missing() - s.Count}
	var old []int
	for i, c := range members {
		if c != nil && c.Ready {
			t.mayStop++
		}
		if i < s.Count && c != nil && c.Label(VersionLabel) != s.Version {
			old = append(old, i)
		}
	}
	// Members that are not ready come first: to replace them costs nothing.
	slices.SortStableFunc(old, func(i, j int) int { return cmp.Compare(btoi(members[i].Ready), btoi(members[j].Ready)) })
	left := 0
	for _, i := range old {
		if t.stop(members[i]) {
			t.submit(i)
		} else {
			left++
		}
	}
	n := s.Count + s.Surge // the members that there may be after this step
	for i, c := range members {
		switch wanted := i < s.Count+min(s.Surge, left); {
		case c == nil && (i < s.Count || wanted):
			t.submit(i)
		case c == nil || i < s.Count:
		case wanted && c.Label(VersionLabel) == s.Version: // it stays until no member is old
		case !t.stop(c):
			n = max(n, i+1)
		case wanted:
			t.submit(i)
		}
	}
	if b, has := state.Budget(s.BudgetID()); !has || b.Budget != s.budget(n) {
		t.do = append(t.do, orbit.PutBudget{Budget: s.budget(n)})
	}
	return t.do, nil
}

// End returns what ends the service: the release of all members, and of the budget. The error is as in [Service.Step].
func (s *Service) End(state *orbit.State) ([]orbit.Commitment, error) {
	members, err := s.members(state)
	if err != nil {
		return nil, err
	}
	t := step{Service: s, mayStop: len(members)}
	for _, c := range members {
		if c != nil {
			t.stop(c)
		}
	}
	if _, has := state.Budget(s.BudgetID()); has {
		t.do = append(t.do, orbit.RemoveBudget{Budget: s.BudgetID()})
	}
	return t.do, nil
}

// Status reads how far the service is. The error is as in [Service.Step].
func (s *Service) Status(state *orbit.State) (out Status, err error) {
	members, err := s.members(state)
	if err != nil {
		return out, err
	}
	for _, c := range members {
		if c == nil {
			continue
		}
		newest := c.Label(VersionLabel) == s.Version
		out.Newest, out.Old = out.Newest+btoi(newest), out.Old+btoi(!newest)
		out.Serving, out.Pending = out.Serving+btoi(c.Ready), out.Pending+btoi(c.Pending())
	}
	out.Done = out.Old == 0 && out.Newest == s.Count && out.Serving == s.Count
	return out, nil
}

// BudgetID is the id of the budget that Step puts, which bounds what drains, evictions and moves may take from the service.
func (s *Service) BudgetID() orbit.BudgetID { return orbit.BudgetID("rollout/" + s.Name) }

// budget returns the budget while there may be n members: Count less those that may be missing have to be ready.
func (s *Service) budget(n int) orbit.Budget {
	b := orbit.Budget{
		ID: s.BudgetID(), Group: s.Spec.Group, Expected: n, Missing: min(n-s.Count+s.missing(), n),
		FreeUnready: true, // a member that crashes again and again does not keep its node
	}
	if b.Group == "" {
		b.Module = s.Spec.Module
	}
	return b
}

// missing is how many members may be missing.
func (s *Service) missing() int {
	if s.Missing == 0 && s.Surge == 0 {
		return 1
	}
	return s.Missing
}

// members returns the members that have not ended, by index; nil: there is none. The budget of the last step says how many
// there may be beyond Count and Surge, because a smaller Count ends members only when others serve.
func (s *Service) members(state *orbit.State) ([]*orbit.Capsule, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	n := s.Count + s.Surge
	if b, has := state.Budget(s.BudgetID()); has {
		n = max(n, min(b.Budget.Expected, 2*most))
	}
	out := make([]*orbit.Capsule, n)
	for i := range out {
		c := state.Capsule(s.Member(i))
		if c == nil || c.Released() {
			continue
		}
		if _, has := c.Labels()[VersionLabel]; !has {
			return nil, fmt.Errorf("rollout: service %q: %w: capsule %q has no label %q, so it is no member; give the service another name", s.Name, orbit.ErrInvalid, c.ID, VersionLabel)
		}
		out[i] = c
	}
	return out, nil
}

// Member returns the id of member i.
func (s *Service) Member(i int) orbit.CapsuleID {
	return orbit.CapsuleID(s.Name + "-" + strconv.Itoa(i))
}

// most is the largest Count, Missing and Surge.
const most = 1 << 20

// check returns what is wrong with the service.
func (s *Service) check() error {
	var wrong []error
	note := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, errors.New(what))
		}
	}
	note(s.Name == "", "it needs a Name")
	note(s.Spec == nil || s.Spec.Group == "" && s.Spec.Module == "", "it needs a Spec with a Group or a Module")
	for i, n := range []int{s.Count, s.Missing, s.Surge} {
		note(n < 0 || n > most, fmt.Sprintf("%s is %d; it must be from 0 to %d", []string{"Count", "Missing", "Surge"}[i], n, most))
	}
	_, has := s.Labels[VersionLabel]
	note(has, "Labels must not have "+strconv.Quote(VersionLabel))
	if len(wrong) > 0 {
		return fmt.Errorf("rollout: service %.70q: %w: %w", s.Name, orbit.ErrInvalid, errors.Join(wrong...))
	}
	return nil
}

// step collects the commitments of one Step.
type step struct {
	*Service
	now orbit.Instant
	// How many more ready members may be released.
	mayStop int
	do      []orbit.Commitment
}

// submit submits member i.
func (t *step) submit(i int) {
	labels := maps.Clone(t.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[VersionLabel] = t.Version
	t.do = append(t.do, orbit.Submit{IDs: []orbit.CapsuleID{t.Member(i)}, Spec: t.Spec, Owner: t.Owner, Labels: labels, At: t.now})
}

// stop releases a member, if it is not ready or may be missing.
func (t *step) stop(c *orbit.Capsule) bool {
	if c.Ready {
		if t.mayStop <= 0 {
			return false
		}
		t.mayStop--
	}
	t.do = append(t.do, orbit.Release{Capsule: c.ID, Final: true})
	return true
}

// btoi is 1 if b is true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
