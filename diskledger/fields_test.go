package diskledger_test

import (
	"maps"
	"reflect"
	"slices"

	"github.com/orbitsched/orbit"
)

// fields notes which fields of structs of package orbit were set in what it has looked at.
type fields map[string]bool

// look notes the fields that are set in v, and those that are not.
func (f fields) look(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			f.look(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			f.look(v.Index(i))
		}
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			if field := t.Field(i); field.IsExported() {
				name := t.Name() + "." + field.Name
				f[name] = f[name] || !v.Field(i).IsZero()
				f.look(v.Field(i))
			}
		}
	}
}

// lookAt notes the fields of what a state has.
func (f fields) lookAt(s *orbit.State) {
	for c := range s.Capsules() {
		f.look(reflect.ValueOf(c))
	}
	for g := range s.Gangs() {
		f.look(reflect.ValueOf(g))
	}
	for n := range s.Nodes() {
		f.look(reflect.ValueOf(n))
	}
	for n := range s.Nominations() {
		f.look(reflect.ValueOf(n))
	}
}

// unset returns the fields that were set nowhere.
func (f fields) unset() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !f[name] {
			names = append(names, name)
		}
	}
	return names
}
