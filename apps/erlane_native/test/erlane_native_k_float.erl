%% SPDX-License-Identifier: Apache-2.0
%% Kernels of floats. mandelbrot, nbody and spectral_norm follow the descriptions of the Computer
%% Language Benchmarks Game, whose published outputs are their known answers.
-module(erlane_native_k_float).

-export([mandelbrot/2, mandel_point/3, nbody/1, steps/2, kepler/2, spectral_norm/1,
         spectral_sum/1, pi_leibniz/1, sqrt_newton/2, horner/2, logistic/2, int_mean/2]).

-native([mandelbrot/2, mandel_point/3, steps/2, kepler/2, spectral_norm/1, spectral_sum/1,
         pi_leibniz/1, sqrt_newton/2, horner/2, logistic/2, int_mean/2]).

%% Points of a grid of Size by Size over [-1.5, 0.5] x [-1, 1] whose orbit stays within Max steps.
-spec mandelbrot(pos_integer(), pos_integer()) -> non_neg_integer().
mandelbrot(Size, Max) when is_integer(Size), Size > 0, is_integer(Max), Max > 0 ->
    mandel_grid(0, 0, Size, Max, 0).

mandel_grid(_, Y, Size, _, Inside) when Y >= Size -> Inside;
mandel_grid(X, Y, Size, Max, Inside) when X >= Size -> mandel_grid(0, Y + 1, Size, Max, Inside);
mandel_grid(X, Y, Size, Max, Inside) ->
    case mandel(2.0 * X / Size - 1.5, 2.0 * Y / Size - 1.0, 0.0, 0.0, Max) of
        0 -> mandel_grid(X + 1, Y, Size, Max, Inside + 1);
        _ -> mandel_grid(X + 1, Y, Size, Max, Inside)
    end.

%% Steps that are left of Max when the orbit of this point leaves the circle, or zero.
-spec mandel_point(float(), float(), non_neg_integer()) -> non_neg_integer().
mandel_point(X, Y, Max) -> mandel(X, Y, 0.0, 0.0, Max).

mandel(_, _, _, _, 0) -> 0;
mandel(Cr, Ci, Zr, Zi, Left) ->
    Rr = Zr * Zr,
    Ii = Zi * Zi,
    case Rr + Ii > 4.0 of
        true -> Left;
        false -> mandel(Cr, Ci, Rr - Ii + Cr, 2.0 * Zr * Zi + Ci, Left - 1)
    end.

%% Energy of the Sun and the four outer planets after so many steps of 0.01 days, in the units of
%% the benchmark (JPL data). Bodies are tuples {X, Y, Z, Vx, Vy, Vz, Mass}. Native is the loop: it
%% could not give way if native code called it.
-spec nbody(non_neg_integer()) -> float().
nbody(Steps) -> energy(steps(Steps, offset(bodies())), 0.0).

-define(SOLAR_MASS, 39.47841760435743).
-define(DAYS, 365.24).

bodies() ->
    [{0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ?SOLAR_MASS},
     {4.84143144246472090e+00, -1.16032004402742839e+00, -1.03622044471123109e-01,
      1.66007664274403694e-03 * ?DAYS, 7.69901118419740425e-03 * ?DAYS,
      -6.90460016972063023e-05 * ?DAYS, 9.54791938424326609e-04 * ?SOLAR_MASS},
     {8.34336671824457987e+00, 4.12479856412430479e+00, -4.03523417114321381e-01,
      -2.76742510726411610e-03 * ?DAYS, 4.99852801234917238e-03 * ?DAYS,
      2.30417297573763929e-05 * ?DAYS, 2.85885980666130812e-04 * ?SOLAR_MASS},
     {1.28943695621391310e+01, -1.51111514016986312e+01, -2.23307578892655734e-01,
      2.96460137564761618e-03 * ?DAYS, 2.37847173959480950e-03 * ?DAYS,
      -2.96589568540237556e-05 * ?DAYS, 4.36624404335156298e-05 * ?SOLAR_MASS},
     {1.53796971148509165e+01, -2.59193146099879641e+01, 1.79258772950371181e-01,
      2.68067772490389322e-03 * ?DAYS, 1.62824170038242295e-03 * ?DAYS,
      -9.51592254519715870e-05 * ?DAYS, 5.15138902046611451e-05 * ?SOLAR_MASS}].

offset([{X, Y, Z, _, _, _, M} | Planets] = Bodies) ->
    {Px, Py, Pz} = momentum(Bodies, 0.0, 0.0, 0.0),
    [{X, Y, Z, -Px / ?SOLAR_MASS, -Py / ?SOLAR_MASS, -Pz / ?SOLAR_MASS, M} | Planets].

momentum([], Px, Py, Pz) -> {Px, Py, Pz};
momentum([{_, _, _, Vx, Vy, Vz, M} | Rest], Px, Py, Pz) ->
    momentum(Rest, Px + Vx * M, Py + Vy * M, Pz + Vz * M).

-spec steps(non_neg_integer(), [tuple()]) -> [tuple()].
steps(0, Bodies) -> Bodies;
steps(N, Bodies) when N > 0 -> steps(N - 1, move(velocities(Bodies))).

velocities([]) -> [];
velocities([Body | Others]) ->
    {Pulled, Rest} = pull(Body, Others, []),
    [Pulled | velocities(Rest)].

pull(Body, [], Done) -> {Body, lists:reverse(Done)};
pull({X, Y, Z, Vx, Vy, Vz, M}, [{X2, Y2, Z2, Vx2, Vy2, Vz2, M2} | Rest], Done) ->
    Dx = X - X2,
    Dy = Y - Y2,
    Dz = Z - Z2,
    D2 = Dx * Dx + Dy * Dy + Dz * Dz,
    Mag = 0.01 / (D2 * math:sqrt(D2)),
    A = M * Mag,
    B = M2 * Mag,
    pull({X, Y, Z, Vx - Dx * B, Vy - Dy * B, Vz - Dz * B, M}, Rest,
         [{X2, Y2, Z2, Vx2 + Dx * A, Vy2 + Dy * A, Vz2 + Dz * A, M2} | Done]).

move([]) -> [];
move([{X, Y, Z, Vx, Vy, Vz, M} | Rest]) ->
    [{X + 0.01 * Vx, Y + 0.01 * Vy, Z + 0.01 * Vz, Vx, Vy, Vz, M} | move(Rest)].

energy([], E) -> E;
energy([{_, _, _, Vx, Vy, Vz, M} = Body | Rest], E) ->
    energy(Rest, potential(Body, Rest, E + 0.5 * M * (Vx * Vx + Vy * Vy + Vz * Vz))).

potential(_, [], E) -> E;
potential({X, Y, Z, _, _, _, M} = Body, [{X2, Y2, Z2, _, _, _, M2} | Rest], E) ->
    Dx = X - X2,
    Dy = Y - Y2,
    Dz = Z - Z2,
    potential(Body, Rest, E - M * M2 / math:sqrt(Dx * Dx + Dy * Dy + Dz * Dz)).

%% Two bodies: a circular orbit around a fixed mass by the symplectic Euler method. The energy after
%% so many steps of Dt stays near -0.5. All state is in arguments.
-spec kepler(non_neg_integer(), float()) -> float().
kepler(Steps, Dt) -> kepler(Steps, Dt, 1.0, 0.0, 0.0, 1.0).

kepler(0, _, X, Y, Vx, Vy) -> 0.5 * (Vx * Vx + Vy * Vy) - 1.0 / math:sqrt(X * X + Y * Y);
kepler(N, Dt, X, Y, Vx, Vy) when N > 0 ->
    R2 = X * X + Y * Y,
    A = Dt / (R2 * math:sqrt(R2)),
    Vx1 = Vx - X * A,
    Vy1 = Vy - Y * A,
    kepler(N - 1, Dt, X + Dt * Vx1, Y + Dt * Vy1, Vx1, Vy1).

%% The square root of the largest eigenvalue of A'A, where A is infinite, cut to N by N.
-spec spectral_norm(pos_integer()) -> float().
spectral_norm(N) when is_integer(N), N > 0 -> power(10, N, ones(N, [])).

ones(0, Acc) -> Acc;
ones(N, Acc) -> ones(N - 1, [1.0 | Acc]).

power(Left, N, U) ->
    V = a_t_a(N, U),
    Next = a_t_a(N, V),
    case Left of
        1 -> math:sqrt(dot(Next, V, 0.0) / dot(V, V, 0.0));
        _ -> power(Left - 1, N, Next)
    end.

a_t_a(N, U) -> a_t_rows(0, N, a_rows(0, N, U)).

a_rows(N, N, _) -> [];
a_rows(I, N, U) -> [a_row(I, 0, U, 0.0) | a_rows(I + 1, N, U)].

a_row(_, _, [], Sum) -> Sum;
a_row(I, J, [X | Rest], Sum) -> a_row(I, J + 1, Rest, Sum + X / cell(I, J)).

a_t_rows(N, N, _) -> [];
a_t_rows(I, N, U) -> [a_t_row(I, 0, U, 0.0) | a_t_rows(I + 1, N, U)].

a_t_row(_, _, [], Sum) -> Sum;
a_t_row(I, J, [X | Rest], Sum) -> a_t_row(I, J + 1, Rest, Sum + X / cell(J, I)).

cell(I, J) -> ((I + J) * (I + J + 1)) div 2 + I + 1.

dot([], [], Sum) -> Sum;
dot([X | Xs], [Y | Ys], Sum) -> dot(Xs, Ys, Sum + X * Y).

%% The sum of all elements of that matrix: the same inner loop without vectors.
-spec spectral_sum(non_neg_integer()) -> float().
spectral_sum(N) when is_integer(N), N >= 0 -> spectral_sum(0, 0, N, 0.0).

spectral_sum(I, _, N, Sum) when I >= N -> Sum;
spectral_sum(I, J, N, Sum) when J >= N -> spectral_sum(I + 1, 0, N, Sum);
spectral_sum(I, J, N, Sum) ->
    spectral_sum(I, J + 1, N, Sum + 1.0 / (((I + J) * (I + J + 1)) div 2 + I + 1)).

%% The first N terms of Leibniz's series.
-spec pi_leibniz(non_neg_integer()) -> float().
pi_leibniz(N) when is_integer(N), N >= 0 -> pi_leibniz(0, N, 1.0, 0.0).

pi_leibniz(N, N, _, Sum) -> 4.0 * Sum;
pi_leibniz(K, N, Sign, Sum) -> pi_leibniz(K + 1, N, -Sign, Sum + Sign / (2 * K + 1)).

%% Newton's method for the square root until two steps agree or Left are done.
-spec sqrt_newton(number(), non_neg_integer()) -> float().
sqrt_newton(A, Left) when A > 0 -> sqrt_newton(A, A + 0.0, Left).

sqrt_newton(_, X, 0) -> X;
sqrt_newton(A, X, Left) ->
    case 0.5 * (X + A / X) of
        X -> X;
        Y -> sqrt_newton(A, Y, Left - 1)
    end.

%% A polynomial with the coefficients 1, 2, ... N at X.
-spec horner(non_neg_integer(), number()) -> number().
horner(N, X) when is_integer(N), N >= 0 -> horner(1, N, X, 0.0).

horner(I, N, _, Sum) when I > N -> Sum;
horner(I, N, X, Sum) -> horner(I + 1, N, X, Sum * X + I).

%% N steps of the logistic map from X with the parameter 3.9: chaotic, so that a single wrong bit
%% shows.
-spec logistic(non_neg_integer(), float()) -> float().
logistic(0, X) -> X;
logistic(N, X) when N > 0 -> logistic(N - 1, 3.9 * X * (1.0 - X)).

%% Mean of the integers from Low to High, by floats: integers converted at every step.
-spec int_mean(integer(), integer()) -> float().
int_mean(Low, High) when is_integer(Low), is_integer(High), Low =< High ->
    int_mean(Low, High, 0.0, High - Low + 1).

int_mean(I, High, Sum, N) when I > High -> Sum / N;
int_mean(I, High, Sum, N) -> int_mean(I + 1, High, Sum + I, N).
