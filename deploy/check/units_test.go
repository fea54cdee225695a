package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// systemd verifies the units without a warning. The programs that they start are not installed here, so another
// program takes their place.
func TestTheUnitsAreValidForSystemd(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT TESTED by systemd: systemd-analyze is not here (apt-get install systemd)")
	}
	starts := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/\w+`)
	for file, as := range map[string]string{"chanq-ui.service": "chanq-ui.service", "worker@.service": "worker@1.service"} {
		text, err := os.ReadFile("../systemd/" + file)
		require.NoError(t, err)
		require.Regexp(t, starts, string(text))
		copied := filepath.Join(t.TempDir(), as)
		require.NoError(t, os.WriteFile(copied, starts.ReplaceAll(text, []byte("ExecStart=/bin/true")), 0o600))
		said, err := exec.Command(program, "verify", "--man=no", copied).CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Empty(t, string(said), file) // an unknown key is no error
	}
}

// The images are not built here. The test checks their files: each stage that is copied from exists, and
// no image has the tag latest.
func TestTheImagesAreKnown(t *testing.T) {
	from := regexp.MustCompile(`(?m)^FROM (\S+?)(?: AS (\S+))?$`)
	copied := regexp.MustCompile(`(?m)^COPY --from=(\S+) `)
	for _, file := range []string{"ui", "worker"} {
		text, err := os.ReadFile("../container/Containerfile." + file)
		require.NoError(t, err)
		var stages []string
		for _, m := range from.FindAllStringSubmatch(string(text), -1) {
			_, tag, tagged := strings.Cut(filepath.Base(m[1]), ":")
			require.True(t, tagged && tag != "latest", "%s: %s", file, m[1])
			stages = append(stages, m[2])
		}
		require.Len(t, stages, 2, file)
		for _, m := range copied.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, stages, m[1], file)
		}
		require.Regexp(t, `(?m)^ENTRYPOINT \["/`, string(text), "without a shell: the image has none")
	}
}
