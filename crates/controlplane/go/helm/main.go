// Writes a chart out as `helm template --include-crds` does, with Helm's own packages. All of Helm takes three times as
// long to build, for clients of registries and clusters that nothing here asks.
//
// usage: helm RELEASE NAMESPACE KUBERNETES-VERSION CHART [NAME=VALUE ...]
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	if len(os.Args) < 5 {
		fail(fmt.Errorf("usage: helm RELEASE NAMESPACE KUBERNETES-VERSION CHART [NAME=VALUE ...]"))
	}
	release := chartutil.ReleaseOptions{Name: os.Args[1], Namespace: os.Args[2], Revision: 1, IsInstall: true}
	version, err := chartutil.ParseKubeVersion(os.Args[3])
	fail(err)
	chart, err := loader.Load(os.Args[4])
	fail(err)
	values := map[string]interface{}{}
	for _, said := range os.Args[5:] {
		fail(strvals.ParseInto(said, values))
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	// Values are held to the chart's schema here.
	all, err := chartutil.ToRenderValues(chart, values, release, capabilities)
	fail(err)
	files, err := engine.Render(chart, all)
	fail(err)
	for _, crd := range chart.CRDObjects() {
		show(crd.Filename, string(crd.File.Data))
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !strings.HasSuffix(name, "NOTES.txt") && strings.TrimSpace(files[name]) != "" {
			show(name, files[name])
		}
	}
}

func show(name, text string) {
	fmt.Printf("---\n# Source: %s\n%s\n", name, strings.TrimPrefix(text, "---\n"))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
