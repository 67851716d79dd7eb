// Command requestinfo prints what the API server's own resolver makes of requests: one JSON object for each of stdin.
package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

type question struct {
	Method string `json:"method"`
	Target string `json:"target"`
}

type answer struct {
	Refused     bool                 `json:"refused"`
	Undecodable bool                 `json:"undecodable"`
	First       map[string]string    `json:"first"`
	Info        *request.RequestInfo `json:"info"`
}

func main() {
	resolver := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked question
		if questions.Decode(&asked) != nil {
			return
		}
		_ = answers.Encode(resolved(resolver, asked))
	}
}

func resolved(resolver *request.RequestInfoFactory, asked question) answer {
	text := asked.Method + " " + asked.Target + " HTTP/1.1\r\nHost: server\r\n\r\n"
	received, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return answer{Refused: true}
	}
	info, err := resolver.NewRequestInfo(received)
	if err != nil {
		return answer{Refused: true}
	}
	options, first := metainternalversion.ListOptions{}, map[string]string{}
	query := received.URL.Query()
	err = metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &options)
	for name, values := range query {
		first[name] = values[0]
	}
	return answer{Undecodable: err != nil, First: first, Info: info}
}
