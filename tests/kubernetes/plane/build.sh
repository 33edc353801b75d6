#!/bin/bash
# Builds Kubernetes from the source package of Debian bookworm into one program that is several,
# by the name it is called by: kube-apiserver, kube-controller-manager, kube-scheduler, kubelet.
#   usage: build.sh OUT WORK     OUT gets the programs; WORK may be removed afterwards (1.5 GB)
# Lines on standard output are progress; the rest, on standard error, is for a log. It needs apt-get
# and dpkg, a Debian mirror, and neither root nor anything installed: it has an apt of its own below
# WORK, and unpacks what it needs, the compiler included.
set -euo pipefail
out=$1 work=$2
say() { echo "[$SECONDS s] $*"; }
mkdir -p "$out" "$work"/apt/{lists/partial,cache/archives/partial} "$work/unpacked"
cd "$work"

# --- sources --------------------------------------------------------------------------------------
# Mirrors differ from place to place: ask apt which one this machine uses for its own release.
mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "bookworm" || $1 == "trixie" || $1 == "bullseye" { print $2; exit }')
[ -n "$mirror" ] || { echo "apt knows no Debian mirror" >&2; exit 1; }
key=/usr/share/keyrings/debian-archive-keyring.gpg
for type in deb deb-src; do echo "$type [signed-by=$key] $mirror bookworm main"; done > apt/sources
apt=(-qq -o "Dir::Etc::sourcelist=$PWD/apt/sources" -o Dir::Etc::sourceparts=/dev/null
     -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache"
     -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=1)
apt-get "${apt[@]}" update >&2
apt-get "${apt[@]}" source --download-only kubernetes >&2
apt-get "${apt[@]}" download golang-1.19-go golang-1.19-src kubernetes-client \
    golang-github-modern-go-reflect2-dev >&2
for package in *.deb; do dpkg -x "$package" unpacked; done
tree=$PWD/gopath/src/k8s.io/kubernetes
mkdir -p "$tree"
tar xzf kubernetes_*.orig.tar.gz -C "$tree" --strip-components=1 --no-same-permissions
version=$(ls kubernetes_*.orig.tar.gz | sed -E 's/^kubernetes_(.*really)?([0-9.]+)\.orig.*/\2/')
say "fetched and unpacked Kubernetes $version"

# The reflect2 in the tarball is too old for this compiler: the API server would fault on the first
# custom resource.
old=$tree/vendor/github.com/modern-go/reflect2
rm -rf "$old"
cp -r unpacked/usr/share/gocode/src/github.com/modern-go/reflect2 "$old"
rm -f "$old/go.mod"

export GOROOT=$PWD/unpacked/usr/lib/go-1.19 GOPATH=$PWD/gopath GOCACHE=$PWD/gocache
export PATH=$GOROOT/bin:$PATH GO111MODULE=off GOFLAGS= CGO_ENABLED=0
cd "$tree"

# --- the one generated file that the tarball lacks ------------------------------------------------
go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen >&2
inputs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' staging/src/k8s.io pkg cmd plugin |
    grep -v -E '_test\.go$|/zz_generated|/testdata/|/code-generator/|/sample-apiserver/|/_examples/' |
    xargs -n1 dirname | sort -u | sed 's#^staging/src/#vendor/#; s#^#k8s.io/kubernetes/#' | paste -sd,)
"$work/openapi-gen" -h hack/boilerplate/boilerplate.generatego.txt -i "$inputs" \
    -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi -r "$work/violations" >&2
say "generated the OpenAPI definitions"

# --- one program, which shares what the four have in common ---------------------------------------
mkdir -p cmd/kube
cat > cmd/kube/main.go <<'GO'
package main

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return manager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand()
	}
	return nil
}

func main() {
	rand.Seed(time.Now().UnixNano())
	name := filepath.Base(os.Args[0])
	chosen := command(name)
	if chosen == nil {
		fmt.Fprintln(os.Stderr, "call this as kube-apiserver, kube-controller-manager, kube-scheduler or kubelet")
		os.Exit(2)
	}
	if name != "kubelet" { // which parses its flags by itself
		pflag.CommandLine.SetNormalizeFunc(flag.WordSepNormalizeFunc)
	}
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := chosen.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
link="-s -w"
for package in component-base client-go/pkg; do
    at=k8s.io/kubernetes/vendor/k8s.io/$package/version
    IFS=. read -r major minor _ <<< "$version"
    link+=" -X $at.gitVersion=v$version -X $at.gitMajor=$major -X $at.gitMinor=$minor"
    link+=" -X $at.gitTreeState=clean"
done
say "compiling; this takes about 4 minutes on 2 cores"
(while sleep 30 > /dev/null; do say "still compiling"; done) &  # sleep is not to hold the output
ticking=$!
trap 'kill $ticking' EXIT
go build -trimpath -tags "providerless dockerless" -ldflags "$link" -o "$out/kube" ./cmd/kube >&2
trap - EXIT
kill $ticking
for name in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
    ln -sf kube "$out/$name"
done
cp "$work/unpacked/usr/bin/kubectl" "$out/kubectl"
# For nodes with real containers, which not everybody has: what holds a pod's namespaces open.
if command -v gcc > /dev/null; then
    gcc -Os -static -DVERSION=3.2 -o "$out/pause" build/pause/linux/pause.c >&2 || true
fi
say "done: $(du -sh "$out" | cut -f1)"
