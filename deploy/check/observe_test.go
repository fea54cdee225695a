package check

import (
	"bufio"
	"cmp"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/chanq/chanq/prove/testdb"
)

// observed is compose-observe.yaml, without what no test looks at.
type observed struct {
	Services map[string]struct {
		Image string
		Build struct {
			Context, Dockerfile string
			Args                map[string]string
		}
		Entrypoint, Command, Ports, Volumes []string
		Environment                         map[string]string
		Configs                             []struct{ Source, Target string }
	}
	Configs map[string]struct{ Content string }
}

func observe(t *testing.T) (all observed, scrapes *config.Config) {
	t.Helper()
	text, err := os.ReadFile("../compose-observe.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &all))
	scrapes, err = config.Load(all.Configs["prometheus"].Content, nil)
	require.NoError(t, err)
	return all, scrapes
}

// No container is started here. What the files name exists, and reaches what it names.
func TestTheComposeFileNamesWhatExists(t *testing.T) {
	all, scrapes := observe(t)
	require.Len(t, all.Services, 5)
	containerfile, err := os.ReadFile("../container/Containerfile.ui")
	require.NoError(t, err)
	require.Contains(t, string(containerfile), "\nARG PROGRAM=./cmd/chanq\n")
	mounted := map[string]bool{}
	for name, s := range all.Services {
		if s.Image != "" {
			require.Regexp(t, `:v?\d`, s.Image, name)
		} else {
			require.FileExists(t, filepath.Join("..", s.Build.Context, s.Build.Dockerfile))
			require.FileExists(t, filepath.Join("../..", cmp.Or(s.Build.Args["PROGRAM"], "cmd/chanq"), "main.go"))
		}
		for _, v := range s.Volumes {
			from, to, _ := strings.Cut(strings.TrimSuffix(v, ":ro"), ":")
			require.FileExists(t, filepath.Join("..", from))
			mounted[to] = true
		}
		for _, c := range s.Configs {
			require.NotEmpty(t, all.Configs[c.Source].Content, name)
			require.NotContains(t, all.Configs[c.Source].Content, "$", "compose replaces it")
		}
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), port)
		}
	}
	for _, file := range scrapes.RuleFiles {
		require.True(t, mounted[file], file)
	}
	listens := strings.Join(append(all.Services["ui"].Command, all.Services["situation"].Entrypoint...), " ")
	for _, s := range scrapes.ScrapeConfigs {
		for _, target := range s.ServiceDiscoveryConfigs[0].(discovery.StaticConfig)[0].Targets {
			name, port, _ := strings.Cut(string(target["__address__"]), ":")
			require.Contains(t, all.Services, name)
			require.Contains(t, listens, "0.0.0.0:"+port)
		}
	}
	require.Equal(t, all.Services["ui"].Environment["UI_PASSWORD"], string(scrapes.ScrapeConfigs[0].HTTPClientConfig.BasicAuth.Password))
	var source struct{ Datasources []struct{ URL string } }
	require.NoError(t, yaml.Unmarshal([]byte(all.Configs["grafana-datasource"].Content), &source))
	require.Equal(t, "http://prometheus:9090", source.Datasources[0].URL)
	var boards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	require.NoError(t, yaml.Unmarshal([]byte(all.Configs["grafana-dashboards"].Content), &boards))
	require.True(t, mounted[boards.Providers[0].Options.Path+"/chanq.json"])
}

// The two programs of chanq run with the arguments of the compose file, on a PostgreSQL here, and Prometheus's scrape finds the trouble.
func TestTheProgramsOfTheComposeFileShowTheTrouble(t *testing.T) {
	testdb.Postgres.Require(t)
	all, scrapes := observe(t)
	dsn := testdb.Postgres.Create(t)
	ui := all.Services["ui"]
	place := strings.NewReplacer(ui.Environment["CHANQ_DSN"], dsn, "0.0.0.0:8686", "127.0.0.1:0", "0.0.0.0:9400", "127.0.0.1:0", "100000", "1000", "${SITUATION:-stuck}", "dead")
	start := func(program string, args []string, says string) string {
		t.Helper()
		built := filepath.Join(t.TempDir(), "chanq")
		build := exec.Command("go", "build", "-o", built, program)
		build.Dir, build.Env = "../..", append(os.Environ(), "GOWORK=")
		said, err := build.CombinedOutput()
		require.NoError(t, err, "%s", said)
		for i := range args {
			args[i] = place.Replace(args[i])
		}
		cmd := exec.Command(built, args...)
		cmd.Env = append(os.Environ(), "CHANQ_DSN="+dsn, "UI_PASSWORD="+ui.Environment["UI_PASSWORD"])
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if found := regexp.MustCompile(says).FindString(lines.Text()); found != "" {
				go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the program
				return found
			}
		}
		require.Fail(t, "it says no address", program)
		return ""
	}
	situation := all.Services["situation"]
	metrics := start(situation.Build.Args["PROGRAM"], append(situation.Entrypoint[1:], situation.Command...), `http://\S+`)
	page := start("./cmd/chanq", append([]string{"ui"}, ui.Command...), `http://\S+`)
	scrape := func(url string) string {
		request, err := http.NewRequest("GET", url, nil)
		require.NoError(t, err)
		auth := scrapes.ScrapeConfigs[0].HTTPClientConfig.BasicAuth
		request.SetBasicAuth(auth.Username, string(auth.Password))
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, 200, answer.StatusCode, "%s", text)
		return string(text)
	}
	testdb.Eventually(t, "the web UI finds that no consumer runs", func() bool {
		return strings.Contains(scrape(page+"/metrics"), `chanq_finding_info{kind="no-consumer",queue="post",severity="failure",text="no consumer runs; `)
	})
	require.Contains(t, scrape(metrics), `chanq_up{queue="post"} 1`)
	require.Contains(t, scrape(page), "no consumer runs")
}
