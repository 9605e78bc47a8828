package kubeorbit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// TestSelectionNames has the names of selections, and the forms that have one name because they select the same.
func TestSelectionNames(t *testing.T) {
	for _, row := range []struct {
		name  string
		terms []string
	}{
		{"default: app=web", []string{
			"labelSelector: {matchLabels: {app: web}}",
			"labelSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}",
			"labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: In, values: [web, web]}]}",
			"namespaces: [default], " + ofWeb,
		}},
		{"default: app in (db,web),tier!=x", []string{
			"labelSelector: {matchExpressions: [{key: app, operator: In, values: [web, db]}, {key: tier, operator: NotIn, values: [x]}]}",
			"labelSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [x]}, {key: app, operator: In, values: [db, web]}]}",
		}},
		{"default: !a,b,c notin (x,z)", []string{
			"labelSelector: {matchExpressions: [{key: b, operator: Exists}, {key: c, operator: NotIn, values: [z, x]}, {key: a, operator: DoesNotExist}]}",
		}},
		{"default: *", []string{"labelSelector: {}"}},
		{"default: -", []string{""}},
		{"a,b: app=web", []string{"namespaces: [b, a, b], " + ofWeb}},
		{"*: app=web", []string{"namespaceSelector: {}, " + ofWeb, "namespaces: [a], namespaceSelector: {}, " + ofWeb}},
		{"{team=x}: app=web", []string{"namespaceSelector: {matchLabels: {team: x}}, " + ofWeb}},
		{"a,{team=x}: app=web", []string{"namespaces: [a], namespaceSelector: {matchLabels: {team: x}}, " + ofWeb}},
	} {
		for _, term := range row.terms {
			all := Selections(podFrom(t, spec(apart(strings.TrimSuffix("topologyKey: zone, "+term, ", ")))))
			require.Len(t, all, 1)
			assert.Equal(t, row.name, all[0].String())
		}
	}
	both := []string{zonal + ", " + ofDB, "topologyKey: rack, labelSelector: {matchLabels: {tier: x}}"}
	for _, terms := range [][]string{both, {both[1], both[0]}, {both[0], both[1], both[0]}} {
		all := Selections(podFrom(t, spec(near(terms...))))
		require.Len(t, all, 1, "only pods that all terms select count")
		assert.Equal(t, "default: app=db & default: tier=x", all[0].String())
	}
}

// TestNamespaceSelectorFirst has an affinity of which one term depends on the labels of namespaces: whoever looks at the
// selection sees that without looking at And.
func TestNamespaceSelectorFirst(t *testing.T) {
	all := Selections(podFrom(t, spec(near(zonal+", "+ofDB, zonal+", namespaceSelector: {matchLabels: {team: x}}, "+ofWeb))))
	require.Len(t, all, 1)
	assert.NotNil(t, all[0].NamespaceSelector)
	assert.Len(t, all[0].And, 1)
}

// TestSelections has a pod with a constraint of each kind.
func TestSelections(t *testing.T) {
	term := func(app string) string {
		return "{topologyKey: zone, labelSelector: {matchLabels: {app: " + app + "}}}"
	}
	weighted := func(app string) string { return "[{weight: 1, podAffinityTerm: " + term(app) + "}]" }
	affinity := "podAffinity: {" + required + "[" + term("a") + "], " + preferred + weighted("b") + "}"
	anti := "podAntiAffinity: {" + required + "[" + term("c") + ", " + term("c") + "], " + preferred + weighted("d") + "}"
	spreads := spread(evenly+", "+zonal+", matchLabelKeys: [rev], labelSelector: {matchLabels: {app: e}}",
		"maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, topologyKey: zone, labelSelector: {matchLabels: {app: f}}",
		evenly+", "+zonal, evenly+", "+zonal+", labelSelector: {}")
	pod := podFrom(t, "{metadata: {name: p, labels: {rev: two}}, spec: {affinity: {"+affinity+", "+anti+"}, "+spreads+"}}")
	var names []string
	for _, s := range Selections(pod) {
		names = append(names, s.String())
	}
	assert.Equal(t, []string{"default: app=a", "default: app=b", "default: app=c", "default: app=d", "default: app=e,rev=two", "default: app=f"}, names)
}

// TestLongNames has names that ledgers take, however long the selectors are, and that still tell them apart.
func TestLongNames(t *testing.T) {
	long := func(last string) string {
		var values []string
		for range 40 {
			values = append(values, strings.Repeat("x", 20)+string(rune('a'+len(values)%26))+strings.Repeat("y", len(values)))
		}
		in := "labelSelector: {matchExpressions: [{key: k, operator: In, values: [" + strings.Join(append(values, last), ", ") + "]}]}"
		return Selections(podFrom(t, spec(apart(zonal+", "+in))))[0].String()
	}
	assert.LessOrEqual(t, len(long("z1")), 253)
	assert.Contains(t, long("z1"), "default: k in (xxx")
	assert.NotEqual(t, long("z1"), long("z2"))
	assert.Equal(t, long("z1"), long("z1"))
}

// TestSelectionNamesSelect generates selections: two with one name select the same pods.
func TestSelectionNamesSelect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSelection(t, "a"), drawSelection(t, "b")
		if a.String() != b.String() {
			return
		}
		for range 10 {
			pod := &corev1.Pod{}
			pod.Namespace = rapid.SampledFrom([]string{"default", "x", "y"}).Draw(t, "namespace")
			pod.Labels = rapid.MapOf(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"", "1", "2"})).Draw(t, "labels")
			namespaces := func(name string) labels.Set { return labels.Set{"team": name} }
			assert.Equal(t, a.Selects(pod, namespaces), b.Selects(pod, namespaces), "%s and %s, pod %s %v", a, b, pod.Namespace, pod.Labels)
		}
	})
}

func drawSelection(t *rapid.T, name string) Selection {
	requirement := rapid.SampledFrom([]string{"a=1", "a in (1)", "a", "!a", "a notin (1)", "a!=1", "b in (1,2)", "b in (2,1)", "b=", "b in ()"})
	text := strings.Join(rapid.SliceOfN(requirement, 0, 2).Draw(t, name+" pods"), ",")
	s := Selection{Pods: parse(t, text), Namespaces: rapid.SampledFrom([][]string{nil, {"x"}, {"x", "y"}}).Draw(t, name+" namespaces")}
	if len(s.Namespaces) == 0 || rapid.Bool().Draw(t, name+" by selector") {
		s.NamespaceSelector = parse(t, rapid.SampledFrom([]string{"", "team", "team=x", "team in (x)"}).Draw(t, name+" selector"))
	}
	return s
}

func parse(t *rapid.T, text string) labels.Selector {
	s, err := labels.Parse(text)
	require.NoError(t, err)
	return s
}
