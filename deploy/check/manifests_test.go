package check

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// manifests are the documents of a file.
func manifests(t *testing.T, file string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var one map[string]any
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, file)
		require.NotEmpty(t, one["apiVersion"], file)
		require.NotEmpty(t, one["kind"], file)
		all = append(all, one)
	}
}

// at follows keys into a document.
func at(t *testing.T, in any, keys ...any) any {
	t.Helper()
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			in = in.(map[string]any)[k]
		case int:
			in = in.([]any)[k]
		}
		require.NotNil(t, in, "%v", keys)
	}
	return in
}

func TestAWorkerHasItsProbesAndTimeToStop(t *testing.T) {
	d := manifests(t, "../kubernetes/worker.yaml")[0]
	pod := at(t, d, "spec", "template", "spec")
	require.GreaterOrEqual(t, at(t, pod, "terminationGracePeriodSeconds"), 60)
	container := at(t, pod, "containers", 0)
	require.Equal(t, "/livez", at(t, container, "livenessProbe", "httpGet", "path"))
	require.Equal(t, "/readyz", at(t, container, "readinessProbe", "httpGet", "path"))
	require.Equal(t, at(t, d, "spec", "selector", "matchLabels"), at(t, d, "spec", "template", "metadata", "labels"))
	for _, file := range []string{"keda-prometheus", "keda-sql"} {
		scaled := manifests(t, "../kubernetes/"+file+".yaml")[0]
		require.Equal(t, at(t, d, "metadata", "name"), at(t, scaled, "spec", "scaleTargetRef", "name"), file)
	}
}

func TestKEDAQueriesExportedMetrics(t *testing.T) {
	for _, trigger := range at(t, manifests(t, "../kubernetes/keda-prometheus.yaml")[0], "spec", "triggers").([]any) {
		query := at(t, trigger, "metadata", "query").(string)
		for _, metric := range metricsOf(t, query) {
			require.Contains(t, exported(t), metric)
		}
		parsed, err := parser.ParseExpr(query)
		require.NoError(t, err)
		require.Equal(t, parser.ValueTypeVector, parsed.Type())
	}
}

// The queries are those of docs/guides/sql.md, which tests run on the engines, and whose plans they look at.
func TestTheQueriesOfKEDAAreThoseOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../kubernetes/keda-sql.yaml")
	require.NoError(t, err)
	document, err := os.ReadFile("../../docs/guides/sql.md")
	require.NoError(t, err)
	other := strings.NewReplacer("\n    # SQL Server, in the place of the trigger above:", "", "\n    # ", "\n    ").Replace(string(text))
	var scaled map[string]any
	require.NoError(t, yaml.NewDecoder(strings.NewReader(other)).Decode(&scaled))
	triggers := at(t, scaled, "spec", "triggers").([]any)
	require.Len(t, triggers, 2)
	for i, engine := range []string{"postgresql", "mssql"} {
		require.Equal(t, engine, at(t, triggers[i], "type"))
		query := at(t, triggers[i], "metadata", "query").(string)
		require.NotContains(t, query, "\n")
		require.Contains(t, string(document), "    query: "+query+"\n", engine)
	}
}

func TestTheWebUIIsServedToThisMachineOrRequiresAPassword(t *testing.T) {
	unit, err := os.ReadFile("../systemd/chanq-ui.service")
	require.NoError(t, err)
	require.Contains(t, string(unit), "--listen 127.0.0.1:")
	require.NotContains(t, string(unit), "\nExecStart=/usr/local/bin/chanq ui --allow-changes")
	image, err := os.ReadFile("../container/Containerfile.ui")
	require.NoError(t, err)
	require.Contains(t, string(image), `"--listen", "0.0.0.0:8686", "--password", "@/run/secrets/password"`)
	for _, file := range []string{"ui", "worker"} {
		image, err := os.ReadFile("../container/Containerfile." + file)
		require.NoError(t, err)
		require.Contains(t, string(image), ":nonroot\n", file)
	}
}
