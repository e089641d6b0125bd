%% SPDX-License-Identifier: Apache-2.0
%% @doc From text to a shared object: finds clang, calls it once, keeps what it made.
%%
%% An object is kept under the hash of its text, its compiler and this VM, beside a sum of its own
%% bytes: a file that was cut short would not fail to load but take the VM down. Nothing is loaded
%% from a directory that others may write to.
%%
%% `ERLANE_CLANG' names the compiler, `ERLANE_NATIVE_CACHE' the directory.
-module(erlane_native_clang).

-export([object/2, ship/2, shipped/1, find/0, adapt/2, directory/0, assembler/1]).

-include_lib("kernel/include/file.hrl").

%% Part of the key: to be raised when the same text is to be compiled another way.
-define(VERSION, 2).
%% Versions of clang that have the option which aligns loops.
-define(ALIGNS, [14, 15, 16, 17, 18, 19, 20, 21]).

%% @doc The path, without `.so', of the object of this text: one that was shipped in a directory
%% given, the one kept, or a new one.
-spec object(iodata(), [file:filename()]) -> {ok, file:filename()} | {error, iolist()}.
object(Text, Shipped) ->
    case [P || D <- Shipped, P <- [filename:join(D, ship_name(Text))], sound(P)] of
        [Path | _] -> {ok, Path};
        [] -> kept(Text)
    end.

%% @doc Where objects are that came with a module.
-spec shipped(term()) -> [file:filename()].
shipped([_ | _] = Beam) ->
    [filename:join([filename:dirname(filename:dirname(Beam)), "priv", "native"])];
shipped(_) -> [].

%% @doc Makes the object that is to come with a module, unless it is there.
-spec ship(iodata(), file:filename()) -> {made | there, file:filename()} | {error, iolist()}.
ship(Text, Dir) ->
    Path = filename:join(Dir, ship_name(Text)),
    case sound(Path) orelse {filelib:ensure_dir(Path), find()} of
        true -> {there, Path ++ ".so"};
        {{error, Why}, _} -> {error, ["cannot make ", Dir, ": ", file:format_error(Why)]};
        {_, {error, Why}} -> {error, Why};
        {ok, {ok, Clang, Version}} ->
            case make(Text, Path, Clang, Version) of
                {ok, _} -> {made, Path ++ ".so"};
                {error, Why} -> {error, Why}
            end
    end.

ship_name(Text) -> hash([Text, erlang:system_info(system_architecture)]).

kept(Text) ->
    case directory() of
        {ok, Dir} ->
            Path = filename:join(Dir, hash([Text, vm()])),
            %% One of an earlier day needs no compiler, nor time to look for one.
            case sound(Path) orelse find() of
                true -> {ok, Path};
                {ok, Clang, Version} -> make(Text, Path, Clang, Version);
                {error, Why} -> {error, Why}
            end;
        {error, Why} -> {error, Why}
    end.

vm() ->
    [erlang:system_info(system_architecture), erlang:system_info(nif_version),
     integer_to_list(?VERSION)].

hash(Data) ->
    <<H:128>> = erlang:md5(Data),
    lists:flatten(io_lib:format("~32.16.0b", [H])).

%% @doc Whether a kept object is whole: it is what its sum was taken of.
sound(Path) ->
    case {file:read_file(Path ++ ".so"), file:read_file(Path ++ ".sum")} of
        {{ok, Object}, {ok, Sum}} -> Sum =:= list_to_binary(hash(Object));
        _ -> false
    end.

make(Text, Path, Clang, Version) ->
    %% Under a name of its own until it is whole: two VMs may make it at the same time.
    Own = Path ++ "." ++ os:getpid() ++ integer_to_list(erlang:unique_integer([positive])),
    try
        ok = file:write_file(Own ++ ".ll", adapt(Text, Version)),
        case run(Clang, ["-shared", "-o", Own ++ ".so", Own ++ ".ll"] ++ flags(Text, Version)) of
            {0, Output} ->
                Object = case file:read_file(Own ++ ".so") of
                             {ok, Made} -> Made;
                             {error, _} -> throw({nothing, Output})
                         end,
                ok = file:write_file(Own ++ ".sum", hash(Object)),
                ok = file:rename(Own ++ ".so", Path ++ ".so"),
                ok = file:rename(Own ++ ".sum", Path ++ ".sum"),
                {ok, Path};
            {Status, Output} ->
                {error, io_lib:format("~ts failed with ~p: ~ts", [Clang, Status, said(Output)])}
        end
    catch
        throw:{nothing, Told} ->
            {error, io_lib:format("~ts made nothing: ~ts", [Clang, said(Told)])};
        error:{badmatch, {error, Why}} ->
            {error, io_lib:format("cannot write to the cache: ~ts", [file:format_error(Why)])}
    after
        _ = [file:delete(Own ++ E) || E <- [".ll", ".so", ".sum"]]
    end.

%% What a compiler says of a failure begins with the reason.
said(Output) -> string:trim(string:slice(Output, 0, 400)).

flags(Text, Version) ->
    %% Division of 128 bits is a function of the compiler's own library.
    Wide = re:run(Text, "(div|rem) i128", [{capture, none}]) =:= match,
    ["-O2", "-fPIC", "-nostdlib", "-ffp-contract=off", "-Wno-override-module"]
        %% Where a loop begins makes it up to 1.4 times as fast or slow. This is an option of LLVM
        %% that no version promises to keep.
        ++ lists:append([["-mllvm", "-align-all-nofallthru-blocks=5"]
                         || lists:member(Version, ?ALIGNS)])
        ++ ["-lgcc" || Wide].

%% @doc The machine code of a text as assembler.
-spec assembler(iodata()) -> {ok, binary()} | {error, iolist()}.
assembler(Text) ->
    case {directory(), find()} of
        {{ok, Dir}, {ok, Clang, Version}} ->
            File = filename:join(Dir, hash(Text) ++ ".asm.ll"),
            ok = file:write_file(File, adapt(Text, Version)),
            Result = run(Clang, ["-S", "-o", "-", File] ++ flags(Text, Version)),
            _ = file:delete(File),
            case Result of
                {0, Output} -> {ok, Output};
                {_, Output} -> {error, Output}
            end;
        {{error, Why}, _} -> {error, Why};
        {_, {error, Why}} -> {error, Why}
    end.

%% @doc Text of LLVM 14 as a version wants it: from 15 on a pointer says not what it points to.
-spec adapt(iodata(), pos_integer()) -> iodata().
adapt(Text, Version) when Version < 15 -> Text;
adapt(Text, _) ->
    Types = "(%func|%entry|double|i256|i128|i64|i32|i16|i8|i1)\\*+",
    re:replace(re:replace(Text, Types, "ptr", [global]),
               "(i64|i32) \\([^()]*\\)\\*", "ptr", [global]).

%% @doc The compiler and its main version.
-spec find() -> {ok, file:filename(), pos_integer()} | {error, iolist()}.
find() ->
    Names = case os:getenv("ERLANE_CLANG") of
                false -> ["clang" | ["clang-" ++ integer_to_list(V) || V <- lists:seq(21, 14, -1)]];
                Name -> [Name]
            end,
    case [P || N <- Names, P <- [os:find_executable(N)], P =/= false] of
        [] -> {error, "clang is not installed"};
        [Clang | _] -> version(Clang)
    end.

version(Clang) ->
    {_, Output} = run(Clang, ["--version"]),
    case re:run(Output, "version ([0-9]+)\\.", [{capture, all_but_first, list}]) of
        {match, [V]} ->
            case list_to_integer(V) of
                N when N >= 14 -> {ok, Clang, N};
                N -> {error, io_lib:format("~ts is version ~b, 14 is the least", [Clang, N])}
            end;
        nomatch -> {error, io_lib:format("~ts does not tell its version", [Clang])}
    end.

%% @doc Where objects are kept; an error when others could put theirs there.
-spec directory() -> {ok, file:filename()} | {error, iolist()}.
directory() ->
    Dir = case os:getenv("ERLANE_NATIVE_CACHE") of
              false -> filename:basedir(user_cache, "erlane_native");
              %% Without a slash at its end.
              D -> filename:join([D])
          end,
    case made(Dir) of
        ok -> private(Dir);
        {error, Why} ->
            {error, io_lib:format("cannot make the cache ~ts: ~ts", [Dir, file:format_error(Why)])}
    end.

%% With many a umask the group could write to what is made.
made(Dir) ->
    %% What is wrong with the way there is said when the last step fails.
    _ = filelib:ensure_dir(Dir),
    case file:make_dir(Dir) of
        ok -> file:change_mode(Dir, 8#700);
        {error, eexist} -> ok;
        Error -> Error
    end.

private(Dir) ->
    case file:read_link_info(Dir) of
        {ok, #file_info{type = directory, mode = Mode, uid = Uid}} ->
            case {Uid =:= own_uid(), Mode band 8#022} of
                {true, 0} -> {ok, Dir};
                {true, _} ->
                    {error, io_lib:format("the cache ~ts can be written by others", [Dir])};
                {false, _} -> {error, io_lib:format("the cache ~ts is not ours", [Dir])}
            end;
        _ -> {error, io_lib:format("the cache ~ts is not a directory", [Dir])}
    end.

%% Who we are to the file system. The owner of our entry among the processes is another one where
%% the VM has capabilities of its own.
own_uid() ->
    case file:read_file("/proc/self/status") of
        {ok, Status} ->
            {match, [Uid]} = re:run(Status, "^Uid:(?:\\s+[0-9]+){3}\\s+([0-9]+)$",
                                    [multiline, {capture, all_but_first, list}]),
            list_to_integer(Uid);
        {error, _} -> none
    end.

run(Program, Args) ->
    Port = open_port({spawn_executable, Program},
                     [{args, Args}, exit_status, stderr_to_stdout, binary, hide]),
    collect(Port, []).

collect(Port, Acc) ->
    receive
        {Port, {data, D}} -> collect(Port, [Acc, D]);
        {Port, {exit_status, Status}} -> {Status, iolist_to_binary(Acc)}
    end.
