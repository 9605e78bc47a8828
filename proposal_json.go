package orbit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// kinds are the kinds of commitments, or of bets, by their names in JSON. In JSON one of them is an object with one
// field that is named after its kind: {"removeNode":{"node":"node-a"}}.
type kinds map[string]reflect.Type

var (
	commitmentKinds = kindsOf(PutNode{}, RemoveNode{}, Submit{}, Place{}, Release{}, Evict{}, Confirm{}, Adopt{}, Respec{},
		Hold{}, Nominate{}, Assign{}, Mark{}, PutBudget{}, RemoveBudget{}, Protect{}, PutQueue{}, RemoveQueue{})
	// oldKinds are former names of kinds, which stored data may have.
	oldKinds = map[string]string{"resize": "respec"}
	betKinds = kindsOf(NodeFreeOf{}, GangUnplaced{}, NodeAt{}, GroupIn{}, MarkAt{})
)

// kindsOf returns the kinds of the values.
func kindsOf(values ...any) kinds {
	k := kinds{}
	for _, v := range values {
		k[kindOf(v)] = reflect.TypeOf(v)
	}
	return k
}

// kindOf returns the name of a value's type in JSON.
func kindOf(v any) string {
	name := reflect.TypeOf(v).Name()
	return strings.ToLower(name[:1]) + name[1:]
}

// kinded is a commitment or a bet in JSON.
type kinded struct {
	of    kinds
	value any
}

// MarshalJSON writes the value as an object with the field of its kind.
func (k kinded) MarshalJSON() ([]byte, error) {
	if t := reflect.TypeOf(k.value); t == nil || t.Name() == "" || k.of[kindOf(k.value)] != t {
		return nil, invalidf("a %T is no commitment and no bet; these are values, not pointers", k.value)
	}
	return json.Marshal(map[string]any{kindOf(k.value): k.value})
}

// read returns the value in the text that MarshalJSON has written.
func (k kinds) read(text []byte) (any, error) {
	var fields map[string]json.RawMessage
	if err := ReadJSON(text, &fields); err != nil {
		return nil, err
	}
	if len(fields) != 1 {
		return nil, invalidf("commitment: %d kinds are set, there must be one", len(fields))
	}
	for name, text := range fields {
		t, known := k[cmp.Or(oldKinds[name], name)]
		if string(text) == "null" {
			return nil, invalidf("commitment: %q is null", name)
		}
		if !known {
			return nil, newer("kind %q of commitment or bet", name)
		}
		value := reflect.New(t)
		if err := ReadJSON(text, value.Interface()); err != nil {
			return nil, err
		}
		return value.Elem().Interface(), nil
	}
	return nil, nil
}

// ReadJSON reads stored JSON into a value: one object, with no text behind it and no field that the value does not have.
// Its errors are ErrInvalid. They are [ErrNewer], too, if there is a field or a kind of commitment that this version of
// orbit does not know; the text is then not damaged, but was written by a newer version.
func ReadJSON(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		var inner *Rejection
		switch {
		case errors.As(err, &inner): // of an UnmarshalJSON of this package
			return inner
		case strings.HasPrefix(err.Error(), "json: unknown field "): // encoding/json has no type for it
			return newer("field %s", strings.TrimPrefix(err.Error(), "json: unknown field "))
		}
		return invalidf("not as orbit writes it: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return invalidf("there is text behind it")
	}
	return nil
}

// newer returns the error for stored data with something that this version does not know.
func newer(format string, args ...any) error {
	return &Rejection{Kind: ErrNewer, Do: -1, Reason: "stored data has an unknown " + fmt.Sprintf(format, args...),
		advice: "read it with the version of orbit that wrote it, or a newer one"}
}

// inUTC returns the commitment with its times in UTC, so that equal times are written alike. Those that have times have a
// method inUTC.
func inUTC(c Commitment) Commitment {
	if timed, ok := c.(interface{ inUTC() Commitment }); ok && isCommitment(c) {
		return timed.inUTC()
	}
	return c
}

// changeJSON is the JSON form of a Change.
type changeJSON struct {
	Revision Revision        `json:"revision,omitempty"`
	Seq      int             `json:"seq,omitempty"`
	ID       ProposalID      `json:"id,omitzero"`
	Do       json.RawMessage `json:"do"`
	Node     NodeID          `json:"node,omitempty"`
}

// MarshalJSON writes the change as a JSON object, in which the commitment is an object with one field that is named
// after its kind: {"revision":7,"do":{"place":{"capsule":"web-1","node":"node-a"}},"node":"node-a"}. Fields that are
// zero are left out. The error is ErrInvalid for a commitment that is a pointer or nil, and for text that JSON cannot
// hold.
func (c Change) MarshalJSON() ([]byte, error) {
	do, err := json.Marshal(kinded{commitmentKinds, inUTC(c.Do)})
	if err == nil {
		do, err = json.Marshal(changeJSON{c.Revision, c.Seq, c.ID, do, c.Node})
	}
	if err != nil {
		return nil, invalidf("change cannot be written: %v", err)
	}
	return do, nil
}

// UnmarshalJSON reads what MarshalJSON writes. It refuses unknown fields, text after the object, and an object that
// does not have exactly one commitment, with an error that is ErrInvalid; c is then unchanged. It judges none of the
// ledger's rules.
func (c *Change) UnmarshalJSON(text []byte) error {
	var in changeJSON
	if err := ReadJSON(text, &in); err != nil {
		return err
	}
	do, err := commitmentKinds.read(in.Do)
	if err != nil {
		return err
	}
	*c = Change{Revision: in.Revision, Seq: in.Seq, ID: in.ID, Do: do.(Commitment), Node: in.Node}
	return nil
}

// proposalJSON is the JSON form of a Proposal.
type proposalJSON struct {
	ID   ProposalID        `json:"id,omitzero"`
	View Revision          `json:"view,omitempty"`
	Do   []json.RawMessage `json:"do"`
	If   []json.RawMessage `json:"if,omitempty"`
}

// MarshalJSON writes the proposal as a JSON object, with commitments and bets as [Change.MarshalJSON] writes
// commitments. Its errors are those of [Change.MarshalJSON].
func (p Proposal) MarshalJSON() ([]byte, error) {
	out := proposalJSON{ID: p.ID, View: p.View}
	for _, c := range p.Do {
		text, err := json.Marshal(kinded{commitmentKinds, inUTC(c)})
		if err != nil {
			return nil, invalidf("proposal cannot be written: %v", err)
		}
		out.Do = append(out.Do, text)
	}
	for _, bet := range p.If {
		text, err := json.Marshal(kinded{betKinds, bet})
		if err != nil {
			return nil, invalidf("proposal cannot be written: %v", err)
		}
		out.If = append(out.If, text)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes, as [Change.UnmarshalJSON] does. It judges none of the ledger's rules.
func (p *Proposal) UnmarshalJSON(text []byte) error {
	var in proposalJSON
	if err := ReadJSON(text, &in); err != nil {
		return err
	}
	out := Proposal{ID: in.ID, View: in.View}
	for _, text := range in.Do {
		c, err := commitmentKinds.read(text)
		if err != nil {
			return err
		}
		out.Do = append(out.Do, c.(Commitment))
	}
	for _, text := range in.If {
		bet, err := betKinds.read(text)
		if err != nil {
			return err
		}
		out.If = append(out.If, bet.(Precondition))
	}
	*p = out
	return nil
}
