%% SPDX-License-Identifier: Apache-2.0
%% @doc A profile of mode `latency' as a page of its own: a table, and for each function its
%% histogram with quantiles and its slowest calls. One file without scripts, which needs no
%% network and may not use it. Pure but for its template, which comes from `priv'.
-module(erlane_prof_latency_page).

-export([format/1]).

-define(WIDTH, 960).
-define(HEIGHT, 150).
-define(FOOT, 22).
-define(TOP, 16).

%% @doc The page.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(#{node := Node, mode := Mode, otp := Otp, began := Began, ns := Ns, notes := Notes,
         latency := Spreads}) ->
    Date = calendar:system_time_to_rfc3339(Began div 1000000, [{offset, "Z"}]),
    Parts = #{<<"title">> => text([atom_to_binary(Node), ", ", atom_to_binary(Mode)]),
              <<"style">> => file("latency.css"),
              <<"facts">> => text(["OTP ", Otp, ", ", Date, ", ", time(Ns)]),
              <<"notes">> => [["<p class=\"dim\">", text(Note), "</p>\n"] || Note <- Notes],
              <<"table">> => table(Spreads),
              <<"functions">> => [function(Spread) || #{buckets := Buckets} = Spread <- Spreads,
                                                      map_size(Buckets) > 0]},
    [First | Pieces] = binary:split(file("latency.html"), <<"{{">>, [global]),
    [First | [begin
                  [Name, Rest] = binary:split(Piece, <<"}}">>),
                  [maps:get(Name, Parts), Rest]
              end || Piece <- Pieces]].

file(Name) ->
    {ok, Bytes} = file:read_file(filename:join(code:priv_dir(erlane_prof), Name)),
    Bytes.

text(Text) ->
    << <<(escape(C))/binary>>
       || <<C/utf8>> <= erlane_prof_text:clean(unicode:characters_to_binary(Text)) >>.

escape($&) -> <<"&amp;">>;
escape($<) -> <<"&lt;">>;
escape($") -> <<"&quot;">>;
escape(C) -> <<C/utf8>>.

time(Ns) -> erlane_prof_text:amount(Ns, nanoseconds).

table(Spreads) ->
    Times = [mean, p50, p90, p99, p999, max],
    ["<table><thead><tr>",
     [["<th scope=\"col\">", Name, "</th>"]
      || Name <- ["calls", "mean", "p50", "p90", "p99", "p99.9", "max", "function"]],
     "</tr></thead><tbody>",
     [begin
          #{calls := Calls} = Summary = erlane_prof_spread:summary(Spread),
          ["<tr><td>", erlane_prof_text:amount(Calls, count),
           [["</td><td>", time(maps:get(Key, Summary))] || Key <- Times],
           "</td><td>", text(erlane_prof_text:name(F)), "</td></tr>"]
      end || #{function := F} = Spread <- Spreads],
     "</tbody></table>"].

function(#{function := F, slowest := Slowest} = Spread) ->
    ["<section><h2>", text(erlane_prof_text:name(F)), "</h2>\n", chart(Spread),
     "<div class=\"scroll\"><table class=\"slow\"><thead><tr>",
     [["<th scope=\"col\">", Name, "</th>"] || Name <- ["slowest", "began", "process", "from"]],
     "</tr></thead><tbody>",
     [["<tr><td>", time(Ns), "</td><td>",
       calendar:system_time_to_rfc3339(At, [{unit, microsecond}, {offset, "Z"}]), "</td><td>",
       text([Proc, " ", Pid]), "</td><td>",
       case Caller of undefined -> ""; _ -> text(erlane_prof_text:name(Caller)) end, "</td></tr>"]
      || #{ns := Ns, at := At, proc := Proc, pid := Pid, caller := Caller} <- Slowest],
     "</tbody></table></div></section>\n"].

%% Bars of equal width for the buckets, which are steps of a logarithm, from the first that has
%% something to the last; below them each power of ten.
chart(#{function := F, buckets := Buckets} = Spread) ->
    Numbers = maps:keys(Buckets),
    {First, Last} = {lists:min(Numbers), lists:max(Numbers)},
    Step = ?WIDTH / (Last - First + 1),
    Most = lists:max(maps:values(Buckets)),
    X = fun(Bucket) -> (Bucket - First) * Step end,
    #{calls := Calls} = Summary = erlane_prof_spread:summary(Spread),
    Label = [text(erlane_prof_text:name(F)), ": ", erlane_prof_text:amount(Calls, count),
             " calls by their time"],
    ["<svg viewBox=\"0 0 ", integer_to_list(?WIDTH), " ",
     integer_to_list(?TOP + ?HEIGHT + ?FOOT), "\" role=\"img\" aria-label=\"", Label, "\">",
     [bar(X(B), max(1.0, Step - 1), max(1.0, ?HEIGHT * N / Most),
          [time(erlane_prof_histogram:low(B)), " to ", time(erlane_prof_histogram:high(B) + 1),
           ": ", erlane_prof_text:amount(N, count)])
      || {B, N} <- lists:sort(maps:to_list(Buckets))],
     io_lib:format("<path class=\"base\" d=\"M0 ~bH~b\"/>", [?TOP + ?HEIGHT, ?WIDTH]),
     [io_lib:format("<text x=\"~.1f\" y=\"~b\">~ts</text>",
                    [X(B), ?TOP + ?HEIGHT + 15, time(T)])
      || T <- [round(math:pow(10, N)) || N <- lists:seq(0, 14)],
         B <- [erlane_prof_histogram:bucket(T)], B >= First, X(B) < ?WIDTH - 40, B =< Last],
     [mark(Name, X(erlane_prof_histogram:bucket(maps:get(Key, Summary))) + Step / 2)
      || {Key, Name} <- [{p50, "p50"}, {p99, "p99"}]],
     "</svg>"].

bar(X, Width, Height, Title) ->
    io_lib:format("<rect x=\"~.1f\" y=\"~.1f\" width=\"~.1f\" height=\"~.1f\">"
                  "<title>~ts</title></rect>",
                  [X, ?TOP + ?HEIGHT - Height, Width, Height, Title]).

mark(Name, X) ->
    {Anchor, At} = case X > ?WIDTH - 40 of
                       true -> {"end", X - 3};
                       false -> {"start", X + 3}
                   end,
    io_lib:format("<path class=\"mark\" d=\"M~.1f 0V~b\"/>"
                  "<text class=\"mark-name\" x=\"~.1f\" y=\"11\" text-anchor=\"~s\">~s</text>",
                  [X, ?TOP + ?HEIGHT, At, Anchor, Name]).
