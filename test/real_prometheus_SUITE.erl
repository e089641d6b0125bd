%% SPDX-License-Identifier: Apache-2.0
%% What others make of our pages: promtool, a Prometheus server that scrapes the listener in
%% each format, and the OpenMetrics parser of the Python client. A missing program fails its
%% case with what to install.
-module(real_prometheus_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2,
         end_per_testcase/2]).
-export([promtool_accepts/1, server_without_native_histograms/1,
         server_with_native_histograms/1, large_family_is_read_whole/1,
         python_client_reads_the_same/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 20000).

suite() -> [{timetrap, {minutes, 4}}].

all() ->
    [promtool_accepts, server_without_native_histograms, server_with_native_histograms,
     large_family_is_read_whole, python_client_reads_the_same].

init_per_testcase(Case, Config) ->
    Dir = lists:concat(["/tmp/erlane_real.", os:getpid(), ".", Case]),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    [{dir, Dir} | Config].

%% Programs end with the process of the case, which started them.
end_per_testcase(_Case, Config) ->
    ok = application:stop(erlane_metrics),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%%% what is measured

%% One family of each type, with labels of any kind, and values known beforehand.
declare() ->
    Hits = erlane_metrics:counter(#{name => <<"shop_hits">>, help => <<"Hits \"so far\"\\.">>,
                                    labels => [<<"page">>]}),
    [ok = erlane_metrics:add(erlane_metrics:handle(Hits, [Label]), N) || {Label, N} <- labels()],
    Room = erlane_metrics:gauge(#{name => <<"shop_room_celsius">>, help => <<"Temperature.">>,
                                  unit => <<"celsius">>, decimals => 2,
                                  labels => [<<"room">>]}),
    [ok = erlane_metrics:set(erlane_metrics:handle(Room, [R]), V)
     || {R, V} <- [{a, -12.25}, {b, infinity}, {c, neg_infinity}, {d, nan}]],
    Took = erlane_metrics:histogram(#{name => <<"shop_took">>, help => <<"Time it took.">>,
                                      labels => [<<"way">>]}),
    [ok = erlane_metrics:observe(erlane_metrics:handle(Took, [in]), V) || V <- observed()],
    %% Two that nobody has used: native histograms without a bucket.
    _ = erlane_metrics:handle(Took, [out]),
    Size = erlane_metrics:histogram(#{name => <<"shop_size_bytes">>, help => <<"Sizes.">>,
                                      unit => <<"bytes">>, input => one,
                                      buckets => [10, 100.5, 1000000]}),
    [ok = erlane_metrics:observe(erlane_metrics:handle(Size, []), V)
     || V <- [1, 10, 11, 100, 101, 5000, 2000000]],
    Wait = erlane_metrics:summary(#{name => <<"shop_wait">>, help => <<"Waiting.">>}),
    [ok = erlane_metrics:observe(erlane_metrics:handle(Wait, []), V) || V <- observed()],
    Build = erlane_metrics:info(#{name => <<"shop_build">>, help => <<"What runs.">>}),
    ok = erlane_metrics:set(erlane_metrics:handle(Build, []), [{<<"version">>, <<"1.2 \"x\"">>}]),
    Door = erlane_metrics:state_set(#{name => <<"shop_door">>, help => <<"The door.">>,
                                      states => [<<"open">>, <<"shut">>]}),
    ok = erlane_metrics:set(erlane_metrics:handle(Door, []), <<"shut">>),
    Took.

labels() ->
    [{<<"plain">>, 5}, {<<>>, 6}, {<<"a\nb">>, 7}, {<<"\"quoted\"">>, 8}, {<<"back\\slash\\n">>, 9},
     {<<"h", 16#C3, 16#A9, " ", 16#F0, 16#9F, 16#98, 16#80, "\t\r,{}=">>, 1 bsl 40}].

%% Nanoseconds: 1 ms to 1 s, evenly, one below the range and two above it.
observed() ->
    [N * 1000000 || N <- lists:seq(1, 1000)] ++ [1, 1 bsl 43, 1 bsl 44].

page(Format) ->
    iolist_to_binary(lists:reverse(erlane_metrics:expose(Format, fun(P, Acc) -> [P | Acc] end,
                                                         []))).

%% The lint and the parser of Prometheus have nothing to say.
promtool_accepts(Config) ->
    Promtool = real_os:need("promtool", "prometheus"),
    _ = declare(),
    File = filename:join(proplists:get_value(dir, Config), "page"),
    ok = file:write_file(File, page(text)),
    Check = fun() -> real_os:run("/bin/sh", ["-c", "exec \"$0\" check metrics <\"$1\"",
                                             Promtool, File]) end,
    ?assertEqual({0, <<>>}, Check()),
    %% It does read what it is given.
    ok = file:write_file(File, <<"x{y=z} 1\n">>),
    ?assertMatch({1, _}, Check()).

%%% the server

server_without_native_histograms(Config) ->
    Took = declare(),
    Ask = server(Config, []),
    [scraped_classic(Ask, Job, Took) || Job <- ["text", "openmetrics", "all"]],
    %% It did not ask for protobuf.
    ?assertEqual([], Ask("histogram_count(shop_took_seconds)")).

server_with_native_histograms(Config) ->
    Took = declare(),
    Ask = server(Config, ["--enable-feature=native-histograms"]),
    [scraped_classic(Ask, Job, Took) || Job <- ["text", "openmetrics"]],
    common(Ask, "all"),
    In = "shop_took_seconds{job=\"all\",way=\"in\"}",
    %% Native, and nothing but native.
    ?assertEqual([1003.0], Ask("histogram_count(" ++ In ++ ")")),
    ?assertEqual([sum()], Ask("histogram_sum(" ++ In ++ ")")),
    ?assertEqual([], Ask("shop_took_seconds_bucket{job=\"all\"}")),
    Hist = erlane_metrics:value(erlane_metrics:handle(Took, [in])),
    [begin
         {Low, _, High} = erlane_metrics:quantile(Hist, Q),
         [Value] = Ask(io_lib:format("histogram_quantile(~w, ~s)", [Q, In])),
         ?assert(Value >= Low * 0.999999 andalso Value =< High * 1.000001, {Q, Low, Value, High})
     end || Q <- [0.01, 0.1, 0.5, 0.9, 0.99]],
    %% Exactly what is at or below 2^-2 s, and all that is above the range.
    ?assertEqual([251.0], rounded(Ask("histogram_fraction(0, 0.25, " ++ In ++ ") * 1003"))),
    ?assertEqual([2.0], rounded(Ask("histogram_fraction(4096, 1e9, " ++ In ++ ") * 1003"))),
    ?assertEqual([0.0], Ask("histogram_count(shop_took_seconds{job=\"all\",way=\"out\"})")).

rounded(Values) -> [float(round(V)) || V <- Values].

%% What the server answers about histograms in classic form.
scraped_classic(Ask, Job, Took) ->
    common(Ask, Job),
    In = "{job=\"" ++ Job ++ "\",way=\"in\"",
    ?assertEqual([1003.0], Ask("shop_took_seconds_count" ++ In ++ "}")),
    ?assertEqual([sum()], Ask("shop_took_seconds_sum" ++ In ++ "}")),
    [?assertEqual([N], Ask("shop_took_seconds_bucket" ++ In ++ ",le=\"" ++ Le ++ "\"}"))
     || {Le, N} <- [{"9.5367431640625e-07", 1.0}, {"0.25", 251.0}, {"0.5", 501.0},
                    {"1.0", 1001.0}, {"4096.0", 1001.0}, {"+Inf", 1003.0}]],
    %% 2^-20 to 2^12, and the rest.
    ?assertEqual([34.0], Ask("count(shop_took_seconds_bucket" ++ In ++ "})")),
    Hist = erlane_metrics:value(erlane_metrics:handle(Took, [in])),
    [begin
         {Low, _, High} = erlane_metrics:quantile(Hist, Q),
         [V] = Ask(io_lib:format("histogram_quantile(~w, shop_took_seconds_bucket~s})", [Q, In])),
         %% The lines are an octave apart.
         ?assert(V >= Low / 2 andalso V =< High * 2, {Q, Low, V, High})
     end || Q <- [0.1, 0.5, 0.9]].

%% All but exponential histograms is the same in every format.
common(Ask, Job) ->
    One = fun(Name) -> Ask(io_lib:format("~s{job=\"~s\"}", [Name, Job])) end,
    [?assertEqual({Label, [float(N)]},
                  {Label, Ask(["shop_hits_total{job=\"", Job, "\",page=", quoted(Label), "}"])})
     || {Label, N} <- labels()],
    Room = fun(R) -> Ask(["shop_room_celsius{job=\"", Job, "\",room=\"", R, "\"}"]) end,
    ?assertEqual([[-12.25], [infinity], [neg_infinity], [nan]], [Room([R]) || R <- "abcd"]),
    ?assertEqual([7.0], One("shop_size_bytes_count")),
    ?assertEqual([2005223.0], One("shop_size_bytes_sum")),
    [?assertEqual([N], Ask(["shop_size_bytes_bucket{job=\"", Job, "\",le=\"", Le, "\"}"]))
     || {Le, N} <- [{"10.0", 2.0}, {"100.5", 4.0}, {"1e+06", 6.0}, {"+Inf", 7.0}]],
    ?assertEqual([1003.0], One("shop_wait_seconds_count")),
    ?assertEqual([sum()], One("shop_wait_seconds_sum")),
    [Median] = Ask(["shop_wait_seconds{job=\"", Job, "\",quantile=\"0.5\"}"]),
    ?assert(abs(Median - 0.501) < 0.501 * 0.044),
    ?assertEqual([1.0], Ask(["shop_build_info{job=\"", Job, "\",version=\"1.2 \\\"x\\\"\"}"])),
    ?assertEqual([1.0], Ask(["shop_door{job=\"", Job, "\",shop_door=\"shut\"}"])),
    ?assertEqual([0.0], Ask(["shop_door{job=\"", Job, "\",shop_door=\"open\"}"])).

%% The sum has the values above the range as the maximum.
sum() ->
    (lists:sum([min(V, 4096 * 1000000000) || V <- observed()])) / 1000000000.

%% A string of PromQL.
quoted(Text) ->
    [$", [case C of
              $" -> "\\\"";
              $\\ -> "\\\\";
              $\n -> "\\n";
              _ -> C
          end || <<C>> <= Text], $"].

%% A family of more than a megabyte comes in several messages of protobuf; all of it arrives.
large_family_is_read_whole(Config) ->
    Family = erlane_metrics:counter(#{name => <<"large">>, help => <<"Many series.">>,
                                      labels => [<<"i">>], limit => 50000}),
    [ok = erlane_metrics:add(erlane_metrics:handle(Family, [I]), I) || I <- lists:seq(1, 40000)],
    ?assert(byte_size(page(protobuf)) > 1 bsl 20),
    Ask = server(Config, ["--enable-feature=native-histograms"]),
    [begin
         ?assertEqual([40000.0], Ask(["count(large_total{job=\"", Job, "\"})"])),
         ?assertEqual([40000 * 40001 / 2], Ask(["sum(large_total{job=\"", Job, "\"})"]))
     end || Job <- ["text", "openmetrics", "all"]].

%% A server that scrapes three listeners, which offer plain text, OpenMetrics, and everything;
%% a function that asks it.
server(Config, Args) ->
    Prometheus = real_os:need("prometheus", "prometheus"),
    Dir = proplists:get_value(dir, Config),
    Jobs = [{"text", [text]}, {"openmetrics", [openmetrics]},
            {"all", [text, openmetrics, protobuf]}],
    Yaml = [["- job_name: ", Job, "\n  static_configs:\n  - targets: ['127.0.0.1:",
             integer_to_list(listener(Formats)), "']\n"] || {Job, Formats} <- Jobs],
    File = filename:join(Dir, "prometheus.yml"),
    ok = file:write_file(File, ["global:\n  scrape_interval: 1s\nscrape_configs:\n", Yaml]),
    Port = real_proxy:free_port(),
    Server = real_os:start(Prometheus,
                           ["--config.file=" ++ File,
                            "--storage.tsdb.path=" ++ filename:join(Dir, "data"),
                            lists:concat(["--web.listen-address=127.0.0.1:", Port]) | Args]),
    real_os:wait_line(Server, "Server is ready to receive web requests"),
    Ask = fun(Query) -> query(Port, Query) end,
    %% Each target was scraped whole, or the log says why not.
    real_os:until(fun() ->
                          ["text", "openmetrics", "all"] =
                              [Job || {Job, _} <- Jobs,
                                      Ask(["up{job=\"", Job, "\"}"]) =:= [1.0],
                                      [N] <- [Ask(["scrape_samples_post_metric_relabeling{job=\"",
                                                   Job, "\"}"])],
                                      N > 0]
                  end),
    ?assertEqual(nomatch, re:run(real_os:output(Server), "level=(warn|error).*scrape")),
    Ask.

listener(Formats) ->
    {ok, Listener} = erlane_metrics_listener:start_link(#{port => 0, formats => Formats}),
    {?LOOPBACK, Port} = erlane_metrics_listener:address(Listener),
    Port.

%% The values of an instant vector, in any order.
query(Port, Query) ->
    Url = lists:concat(["http://127.0.0.1:", Port, "/api/v1/query?query=",
                        binary_to_list(uri_string:quote(iolist_to_binary(Query)))]),
    %% Not httpc: it wants the system's certificates even for http, on OTP 27.
    {0, Body} = real_os:run(real_os:need("curl", "curl"),
                            ["-sSf", "-m", integer_to_list(?WAIT_MS div 1000), Url]),
    {match, [_]} = re:run(Body, "^{\"status\":\"(success)\"", [{capture, all_but_first, binary}]),
    case re:run(Body, "\"value\":\\[[0-9.e+]+,\"([^\"]+)\"\\]",
                [global, {capture, all_but_first, binary}]) of
        {match, Values} -> [number(V) || [V] <- Values];
        nomatch -> []
    end.

number(<<"+Inf">>) -> infinity;
number(<<"-Inf">>) -> neg_infinity;
number(<<"NaN">>) -> nan;
number(Text) ->
    <<Float/float>> = <<(erlane_metrics_text_reader:bits(Text)):64>>,
    Float.

%%% the client

%% 200 pages of any families, and one with a sample of each type: the parser of the Python
%% client accepts them all, and has read the same types, units, help texts, labels and doubles.
python_client_reads_the_same(Config) ->
    %% Debian's own: another one in the path would not have the package.
    Python = real_os:need("/usr/bin/python3", "python3-prometheus-client"),
    Dir = proplists:get_value(dir, Config),
    _ = declare(),
    Random = [begin
                  {ok, Page} = proper_gen:pick(erlane_metrics_pages:page(), 5 + I rem 25),
                  erlane_metrics_pages:write(openmetrics, Page)
              end || I <- lists:seq(1, 200)],
    Pages = [page(openmetrics) | Random],
    Files = [filename:join(Dir, lists:concat(["page", I])) || I <- lists:seq(1, length(Pages))],
    [ok = file:write_file(File, Page) || {File, Page} <- lists:zip(Files, Pages)],
    Script = filename:join(Dir, "read.py"),
    ok = file:write_file(Script, python()),
    {0, Output} = real_os:run(Python, [Script | Files]),
    Read = lists:droplast(binary:split(Output, <<"end of page\n">>, [global])),
    [?assertEqual({File, lists:sort(binary:split(ours(Page), <<"\n">>, [global]))},
                  {File, lists:sort(binary:split(Theirs, <<"\n">>, [global]))})
     || {File, Page, Theirs} <- lists:zip3(Files, Pages, Read)],
    ?assert(byte_size(Output) > 100000).

%% Both write hexadecimal digits, so that no text needs an escape.
python() ->
    <<"import sys, struct\n"
      "from prometheus_client.openmetrics.parser import text_string_to_metric_families\n"
      "def h(text): return text.encode('utf-8').hex()\n"
      "for name in sys.argv[1:]:\n"
      "    with open(name, encoding='utf-8', newline='') as f: page = f.read()\n"
      "    for m in text_string_to_metric_families(page):\n"
      "        print('family', m.name, m.type, h(m.unit), h(m.documentation))\n"
      "        for s in m.samples:\n"
      "            labels = ','.join(sorted(k + '=' + h(v) for k, v in s.labels.items()))\n"
      "            print(s.name, '{' + labels + '}', struct.pack('>d', s.value).hex())\n"
      "    print('end of page')\n">>.

ours(Page) ->
    Text = [[["family ", Name, $\s, Type, $\s, hex(Unit), $\s, hex(Help), $\n],
             [[Sample, " {", lists:join(",", lists:sort([[K, $=, hex(V)] || {K, V} <- Labels])),
               "} ", io_lib:format("~16.16.0b", [erlane_metrics_text_reader:bits(Value)]), $\n]
              || {Sample, Labels, Value} <- Samples]]
            || #{name := Name, type := Type, unit := Unit, help := Help, samples := Samples}
                   <- erlane_metrics_text_reader:read(openmetrics, Page)],
    iolist_to_binary(Text).

hex(undefined) -> <<>>;
hex(Text) -> string:lowercase(binary:encode_hex(Text)).
