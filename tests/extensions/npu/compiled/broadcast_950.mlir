#map = affine_map<(d0)[s0] -> (d0 + s0)>
module attributes {dlti.target_system_spec = #dlti.target_system_spec<"NPU" : #hacc.target_device_spec<#dlti.dl_entry<"AI_CORE_COUNT", 32 : i32>, #dlti.dl_entry<"CUBE_CORE_COUNT", 32 : i32>, #dlti.dl_entry<"VECTOR_CORE_COUNT", 64 : i32>, #dlti.dl_entry<"UB_SIZE", 2031616 : i32>, #dlti.dl_entry<"L1_SIZE", 4194304 : i32>, #dlti.dl_entry<"L0A_SIZE", 524288 : i32>, #dlti.dl_entry<"L0B_SIZE", 524288 : i32>, #dlti.dl_entry<"L0C_SIZE", 2097152 : i32>, #dlti.dl_entry<"UB_ALIGN_SIZE", 256 : i32>, #dlti.dl_entry<"L1_ALIGN_SIZE", 256 : i32>, #dlti.dl_entry<"L0C_ALIGN_SIZE", 4096 : i32>, #dlti.dl_entry<"MINIMAL_D_CACHE_SIZE", 262144 : i32>, #dlti.dl_entry<"MAXIMUM_D_CACHE_SIZE", 983040 : i32>, #dlti.dl_entry<"ARCH", "dav-c310">>>, hacc.target = #hacc.target<"Ascend950PR_9589">, hivm.aic_bitcode = #hivm.aic_bitcode<"meta_op.aic.c310.bc">, hivm.aiv_bitcode = #hivm.aiv_bitcode<"meta_op.aiv.c310.bc">, hivm.host_bitcode = #hivm.host_bitcode<"host-a5.bc">, hivm.mix_aic_bitcode = #hivm.mix_aic_bitcode<"meta_op.mix.aic.c310.bc">, hivm.mix_aiv_bitcode = #hivm.mix_aiv_bitcode<"meta_op.mix.aiv.c310.bc">, hivm.module_core_type = #hivm.module_core_type<AIV>} {
  func.func @_broadcast_kernel_outlined_vf_0(%arg0: memref<256xf16, #hivm.address_space<ub>>) attributes {hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.vector_function, no_inline} {
    %0 = llvm.mlir.constant(1 : i32) : i32
    %1 = llvm.mlir.constant(128 : i32) : i32
    %2 = llvm.mlir.constant(256 : i32) : i32
    %3 = llvm.mlir.constant(0 : i32) : i32
    %4 = llvm.mlir.constant(0.000000e+00 : f16) : f16
    %5 = llvm.mlir.constant(9 : i32) : i32
    %6 = "hivm_regbaseintrins.intr.hivm.pge.b16"(%5, %3) {mask_bit_width = 16 : i32} : (i32, i32) -> vector<256xi1>
    %7 = "hivm_regbaseintrins.intr.hivm.vdups.z"(%4, %6, %0) : (f16, vector<256xi1>, i32) -> vector<128xf16>
    cf.br ^bb1(%3 : i32)
  ^bb1(%8: i32):  // 2 preds: ^bb0, ^bb2
    %9 = arith.cmpi slt, %8, %2 : i32
    cf.cond_br %9, ^bb2, ^bb3
  ^bb2:  // pred: ^bb1
    %10 = llvm.sext %8 : i32 to i64
    %11 = builtin.unrealized_conversion_cast %10 : i64 to index
    %base_buffer, %offset, %sizes, %strides = memref.extract_strided_metadata %arg0 : memref<256xf16, #hivm.address_space<ub>> -> memref<f16, #hivm.address_space<ub>>, index, index, index
    %reinterpret_cast = memref.reinterpret_cast %base_buffer to offset: [%11], sizes: [128], strides: [1] : memref<f16, #hivm.address_space<ub>> to memref<128xf16, strided<[1], offset: ?>, #hivm.address_space<ub>>
    %12 = builtin.unrealized_conversion_cast %reinterpret_cast : memref<128xf16, strided<[1], offset: ?>, #hivm.address_space<ub>> to !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)>
    %13 = "hivm_regbaseintrins.intr.hivm.pge.b16"(%5, %3) {mask_bit_width = 16 : i32} : (i32, i32) -> vector<256xi1>
    %14 = llvm.extractvalue %12[1] : !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)> 
    %15 = llvm.extractvalue %12[2] : !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)> 
    %16 = llvm.getelementptr %14[%15] : (!llvm.ptr<6>, i64) -> !llvm.ptr<6>, f16
    "hivm_regbaseintrins.intr.hivm.vstsx1.v128f16"(%7, %16, %3, %0, %3, %13) : (vector<128xf16>, !llvm.ptr<6>, i32, i32, i32, vector<256xi1>) -> ()
    %17 = arith.addi %8, %1 overflow<nsw> : i32
    cf.br ^bb1(%17 : i32)
  ^bb3:  // pred: ^bb1
    return
  }
  func.func @_broadcast_kernel_outlined_vf_1(%arg0: memref<256xf16, #hivm.address_space<ub>>, %arg1: memref<32x256xf16, #hivm.address_space<ub>>) attributes {hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.vector_function, no_inline} {
    %0 = llvm.mlir.constant(9 : i32) : i32
    %1 = llvm.mlir.constant(128 : i32) : i32
    %2 = llvm.mlir.constant(256 : i32) : i32
    %3 = llvm.mlir.constant(0 : i32) : i32
    %4 = llvm.mlir.constant(32 : i32) : i32
    %5 = llvm.mlir.constant(1 : i32) : i32
    cf.br ^bb1(%3 : i32)
  ^bb1(%6: i32):  // 2 preds: ^bb0, ^bb5
    %7 = arith.cmpi slt, %6, %4 : i32
    cf.cond_br %7, ^bb2, ^bb6
  ^bb2:  // pred: ^bb1
    %8 = llvm.sext %6 : i32 to i64
    %9 = builtin.unrealized_conversion_cast %8 : i64 to index
    cf.br ^bb3(%3 : i32)
  ^bb3(%10: i32):  // 2 preds: ^bb2, ^bb4
    %11 = arith.cmpi slt, %10, %2 : i32
    cf.cond_br %11, ^bb4, ^bb5
  ^bb4:  // pred: ^bb3
    %12 = llvm.sext %10 : i32 to i64
    %13 = builtin.unrealized_conversion_cast %12 : i64 to index
    %base_buffer, %offset, %sizes, %strides = memref.extract_strided_metadata %arg0 : memref<256xf16, #hivm.address_space<ub>> -> memref<f16, #hivm.address_space<ub>>, index, index, index
    %reinterpret_cast = memref.reinterpret_cast %base_buffer to offset: [%13], sizes: [128], strides: [1] : memref<f16, #hivm.address_space<ub>> to memref<128xf16, strided<[1], offset: ?>, #hivm.address_space<ub>>
    %14 = builtin.unrealized_conversion_cast %reinterpret_cast : memref<128xf16, strided<[1], offset: ?>, #hivm.address_space<ub>> to !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)>
    %15 = llvm.extractvalue %14[1] : !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)> 
    %16 = llvm.extractvalue %14[2] : !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)> 
    %17 = llvm.getelementptr %15[%16] : (!llvm.ptr<6>, i64) -> !llvm.ptr<6>, f16
    %18 = "hivm_regbaseintrins.intr.hivm.vldsx1.v128f16"(%17, %3, %3, %3) : (!llvm.ptr<6>, i32, i32, i32) -> vector<128xf16>
    %base_buffer_0, %offset_1, %sizes_2:2, %strides_3:2 = memref.extract_strided_metadata %arg1 : memref<32x256xf16, #hivm.address_space<ub>> -> memref<f16, #hivm.address_space<ub>>, index, index, index, index, index
    %c256 = arith.constant 256 : index
    %19 = arith.muli %9, %c256 : index
    %20 = arith.addi %19, %13 : index
    %reinterpret_cast_4 = memref.reinterpret_cast %base_buffer_0 to offset: [%20], sizes: [128], strides: [1] : memref<f16, #hivm.address_space<ub>> to memref<128xf16, #map, #hivm.address_space<ub>>
    %21 = builtin.unrealized_conversion_cast %reinterpret_cast_4 : memref<128xf16, #map, #hivm.address_space<ub>> to !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)>
    %22 = "hivm_regbaseintrins.intr.hivm.pge.b16"(%0, %3) {mask_bit_width = 16 : i32} : (i32, i32) -> vector<256xi1>
    %23 = llvm.extractvalue %21[1] : !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)> 
    %24 = llvm.extractvalue %21[2] : !llvm.struct<(ptr<6>, ptr<6>, i64, array<1 x i64>, array<1 x i64>)> 
    %25 = llvm.getelementptr %23[%24] : (!llvm.ptr<6>, i64) -> !llvm.ptr<6>, f16
    "hivm_regbaseintrins.intr.hivm.vstsx1.v128f16"(%18, %25, %3, %5, %3, %22) : (vector<128xf16>, !llvm.ptr<6>, i32, i32, i32, vector<256xi1>) -> ()
    %26 = arith.addi %10, %1 overflow<nsw> : i32
    cf.br ^bb3(%26 : i32)
  ^bb5:  // pred: ^bb3
    %27 = arith.addi %6, %5 overflow<nsw> : i32
    cf.br ^bb1(%27 : i32)
  ^bb6:  // pred: ^bb1
    return
  }
  func.func private @load_gm_to_ubuf_1d_half(memref<?xf16, strided<[?], offset: ?>, #hivm.address_space<gm>>, memref<?xf16, strided<[?], offset: ?>, #hivm.address_space<ub>>, i32, f16, index, i32) attributes {hacc.function_kind = #hacc.function_kind<DEVICE>, hacc.noinline, hivm.func_core_type = #hivm.func_core_type<AIV>, hivm_regbaseintrins.target = #hivm_regbaseintrins.target<"dav-c310">, llvm.emit_c_interface}
  func.func private @store_ubuf_to_gm_2d_half(memref<?x?xf16, strided<[?, ?], offset: ?>, #hivm.address_space<ub>>, memref<?x?xf16, strided<[?, ?], offset: ?>, #hivm.address_space<gm>>, i32) attributes {hacc.function_kind = #hacc.function_kind<DEVICE>, hacc.noinline, hivm.func_core_type = #hivm.func_core_type<AIV>, hivm_regbaseintrins.target = #hivm_regbaseintrins.target<"dav-c310">, llvm.emit_c_interface}
  func.func @_broadcast_kernel(%arg0: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}, %arg1: memref<?xi8, #hivm.address_space<gm>> {hacc.arg_type = #hacc.arg_type<sync_block_lock>}, %arg2: memref<?xi8, #hivm.address_space<gm>> {hacc.arg_type = #hacc.arg_type<workspace>}, %arg3: memref<?xf16, #hivm.address_space<gm>> {tt.divisibility = 16 : i32, tt.tensor_kind = 0 : i32}, %arg4: memref<?xf16, #hivm.address_space<gm>> {tt.divisibility = 16 : i32, tt.tensor_kind = 1 : i32}, %arg5: i32, %arg6: i32 {tt.divisibility = 16 : i32}, %arg7: i32, %arg8: i32, %arg9: i32) attributes {SyncBlockLockArgIdx = 0 : i64, WorkspaceArgIdx = 1 : i64, func_dyn_memref_args = dense<[false, true, true, true, true, false, false, false, false, false]> : vector<10xi1>, hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<AIV>, hivm.vf_mode = #hivm.vf_mode<SIMD>, hivm_regbaseintrins.target = #hivm_regbaseintrins.target<"dav-c310">, parallel_mode = "simd"} {
    %0 = llvm.mlir.constant(16896 : i64) : i64
    %1 = llvm.mlir.constant(512 : i64) : i64
    %2 = llvm.mlir.constant(1 : i64) : i64
    %3 = llvm.mlir.constant(2 : i64) : i64
    %4 = llvm.mlir.constant(255 : i32) : i32
    %5 = llvm.mlir.constant(256 : i32) : i32
    %6 = llvm.mlir.constant(32 : i64) : i64
    %7 = llvm.mlir.constant(256 : i64) : i64
    %8 = llvm.mlir.constant(256 : index) : i64
    %9 = llvm.mlir.constant(0.000000e+00 : f16) : f16
    %10 = llvm.mlir.constant(32 : index) : i64
    %11 = llvm.mlir.constant(0 : i32) : i32
    %12 = llvm.mlir.constant(2 : i32) : i32
    %13 = llvm.mlir.constant(true) : i1
    %14 = llvm.mlir.constant(0 : i64) : i64
    %15 = llvm.mlir.constant(0 : index) : i64
    %16 = builtin.unrealized_conversion_cast %15 : i64 to index
    %17 = hivm.hir.pointer_cast(%1) : memref<32x256xf16, #hivm.address_space<ub>>
    %18 = builtin.unrealized_conversion_cast %17 : memref<32x256xf16, #hivm.address_space<ub>> to !llvm.struct<(ptr<6>, ptr<6>, i64, array<2 x i64>, array<2 x i64>)>
    %19 = hivm.hir.pointer_cast(%0) : memref<32x256xf16, #hivm.address_space<ub>>
    %20 = builtin.unrealized_conversion_cast %19 : memref<32x256xf16, #hivm.address_space<ub>> to !llvm.struct<(ptr<6>, ptr<6>, i64, array<2 x i64>, array<2 x i64>)>
    %alloca = memref.alloca() {hivm.multi_buffer_counter_for = 0 : i64} : memref<1xi64>
    memref.store %14, %alloca[%16] : memref<1xi64>
    hivm.hir.set_ctrl false at ctrl[60]
    hivm.hir.set_ctrl true at ctrl[48]
    %21 = hivm.hir.get_block_idx -> i64
    %22 = llvm.trunc %21 : i64 to i32
    %23 = llvm.srem %22, %arg7  : i32
    %24 = llvm.add %arg6, %4 : i32
    %25 = llvm.sdiv %24, %5  : i32
    %26 = llvm.sdiv %23, %25  : i32
    %27 = llvm.sext %26 : i32 to i64
    %28 = llvm.mul %27, %6 : i64
    %29 = llvm.sdiv %arg7, %25  : i32
    %30 = llvm.sext %29 : i32 to i64
    %31 = llvm.mul %30, %6 : i64
    %32 = llvm.srem %23, %25  : i32
    %33 = llvm.sext %32 : i32 to i64
    %34 = llvm.mul %33, %7 : i64
    %35 = builtin.unrealized_conversion_cast %34 : i64 to index
    %36 = hivm.hir.pointer_cast(%14) : memref<256xf16, #hivm.address_space<ub>>
    %c256 = arith.constant 256 : index
    %37 = arith.addi %35, %c256 : index
    %38 = builtin.unrealized_conversion_cast %37 : index to i64
    %39 = llvm.sext %arg6 : i32 to i64
    %40 = builtin.unrealized_conversion_cast %39 : i64 to index
    %41 = llvm.intr.smax(%34, %39)  : (i64, i64) -> i64
    %42 = llvm.intr.smin(%38, %41)  : (i64, i64) -> i64
    %43 = builtin.unrealized_conversion_cast %42 : i64 to index
    %c-1 = arith.constant -1 : index
    %44 = arith.muli %35, %c-1 : index
    %45 = arith.addi %43, %44 : index
    %46 = builtin.unrealized_conversion_cast %45 : index to i64
    %47 = llvm.icmp "slt" %46, %8 : i64
    cf.cond_br %47, ^bb1, ^bb2
  ^bb1:  // pred: ^bb0
    call @_broadcast_kernel_outlined_vf_0(%36) {hivm.vector_function, no_inline} : (memref<256xf16, #hivm.address_space<ub>>) -> ()
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE2>, <EVENT_ID0>]
    cf.br ^bb2
  ^bb2:  // 2 preds: ^bb0, ^bb1
    %base_buffer, %offset, %sizes, %strides = memref.extract_strided_metadata %arg3 : memref<?xf16, #hivm.address_space<gm>> -> memref<f16, #hivm.address_space<gm>>, index, index, index
    %reinterpret_cast = memref.reinterpret_cast %base_buffer to offset: [%35], sizes: [%45], strides: [1] : memref<f16, #hivm.address_space<gm>> to memref<?xf16, strided<[1], offset: ?>, #hivm.address_space<gm>>
    %base_buffer_0, %offset_1, %sizes_2, %strides_3 = memref.extract_strided_metadata %36 : memref<256xf16, #hivm.address_space<ub>> -> memref<f16, #hivm.address_space<ub>>, index, index, index
    %reinterpret_cast_4 = memref.reinterpret_cast %base_buffer_0 to offset: [0], sizes: [%45], strides: [1] : memref<f16, #hivm.address_space<ub>> to memref<?xf16, #hivm.address_space<ub>>
    %cast = memref.cast %reinterpret_cast : memref<?xf16, strided<[1], offset: ?>, #hivm.address_space<gm>> to memref<?xf16, strided<[?], offset: ?>, #hivm.address_space<gm>>
    %cast_5 = memref.cast %reinterpret_cast_4 : memref<?xf16, #hivm.address_space<ub>> to memref<?xf16, strided<[?], offset: ?>, #hivm.address_space<ub>>
    call @load_gm_to_ubuf_1d_half(%cast, %cast_5, %12, %9, %16, %11) : (memref<?xf16, strided<[?], offset: ?>, #hivm.address_space<gm>>, memref<?xf16, strided<[?], offset: ?>, #hivm.address_space<ub>>, i32, f16, index, i32) -> ()
    hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    %48 = llvm.sext %arg5 : i32 to i64
    %49 = llvm.sext %arg5 : i32 to i64
    %50 = llvm.intr.smin(%46, %8)  : (i64, i64) -> i64
    %51 = builtin.unrealized_conversion_cast %50 : i64 to index
    hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_V>, <EVENT_ID1>]
    cf.br ^bb3(%28 : i64)
  ^bb3(%52: i64):  // 2 preds: ^bb2, ^bb4
    %53 = arith.cmpi slt, %52, %48 : i64
    cf.cond_br %53, ^bb4, ^bb5
  ^bb4:  // pred: ^bb3
    %54 = builtin.unrealized_conversion_cast %52 : i64 to index
    %55 = memref.load %alloca[%16] {markDCacheInvalidatePatternVisited = 0 : i32} : memref<1xi64>
    %56 = llvm.urem %55, %3  : i64
    %57 = llvm.icmp "eq" %56, %2 : i64
    %58 = llvm.select %57, %20, %18 : i1, !llvm.struct<(ptr<6>, ptr<6>, i64, array<2 x i64>, array<2 x i64>)>
    %59 = builtin.unrealized_conversion_cast %58 : !llvm.struct<(ptr<6>, ptr<6>, i64, array<2 x i64>, array<2 x i64>)> to memref<32x256xf16, #hivm.address_space<ub>>
    %60 = llvm.trunc %56 : i64 to i1
    %61 = llvm.xor %60, %13  : i1
    %62 = llvm.zext %61 : i1 to i64
    %63 = arith.muli %54, %40 : index
    %64 = arith.addi %35, %63 : index
    %c32 = arith.constant 32 : index
    %65 = arith.addi %54, %c32 : index
    %66 = builtin.unrealized_conversion_cast %65 : index to i64
    %67 = llvm.intr.smax(%52, %49)  : (i64, i64) -> i64
    %68 = llvm.intr.smin(%66, %67)  : (i64, i64) -> i64
    %69 = builtin.unrealized_conversion_cast %68 : i64 to index
    %c-1_6 = arith.constant -1 : index
    %70 = arith.muli %54, %c-1_6 : index
    %71 = arith.addi %69, %70 : index
    %72 = builtin.unrealized_conversion_cast %71 : index to i64
    %73 = llvm.intr.smin(%72, %10)  : (i64, i64) -> i64
    %74 = builtin.unrealized_conversion_cast %73 : i64 to index
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_V>, %62]
    call @_broadcast_kernel_outlined_vf_1(%36, %59) {hivm.vector_function, no_inline} : (memref<256xf16, #hivm.address_space<ub>>, memref<32x256xf16, #hivm.address_space<ub>>) -> ()
    hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    %base_buffer_7, %offset_8, %sizes_9:2, %strides_10:2 = memref.extract_strided_metadata %59 : memref<32x256xf16, #hivm.address_space<ub>> -> memref<f16, #hivm.address_space<ub>>, index, index, index, index, index
    %reinterpret_cast_11 = memref.reinterpret_cast %base_buffer_7 to offset: [0], sizes: [%74, %51], strides: [256, 1] : memref<f16, #hivm.address_space<ub>> to memref<?x?xf16, strided<[256, 1]>, #hivm.address_space<ub>>
    %base_buffer_12, %offset_13, %sizes_14, %strides_15 = memref.extract_strided_metadata %arg4 : memref<?xf16, #hivm.address_space<gm>> -> memref<f16, #hivm.address_space<gm>>, index, index, index
    %reinterpret_cast_16 = memref.reinterpret_cast %base_buffer_12 to offset: [%64], sizes: [%74, %51], strides: [%40, 1] : memref<f16, #hivm.address_space<gm>> to memref<?x?xf16, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>
    hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
    hivm.hir.pipe_barrier[<PIPE_MTE3>]
    %cast_17 = memref.cast %reinterpret_cast_11 : memref<?x?xf16, strided<[256, 1]>, #hivm.address_space<ub>> to memref<?x?xf16, strided<[?, ?], offset: ?>, #hivm.address_space<ub>>
    %cast_18 = memref.cast %reinterpret_cast_16 : memref<?x?xf16, strided<[?, 1], offset: ?>, #hivm.address_space<gm>> to memref<?x?xf16, strided<[?, ?], offset: ?>, #hivm.address_space<gm>>
    call @store_ubuf_to_gm_2d_half(%cast_17, %cast_18, %11) : (memref<?x?xf16, strided<[?, ?], offset: ?>, #hivm.address_space<ub>>, memref<?x?xf16, strided<[?, ?], offset: ?>, #hivm.address_space<gm>>, i32) -> ()
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_V>, %62]
    %75 = llvm.add %55, %2 : i64
    memref.store %75, %alloca[%16] : memref<1xi64>
    %76 = arith.addi %52, %31 overflow<nsw> : i64
    cf.br ^bb3(%76 : i64)
  ^bb5:  // pred: ^bb3
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_V>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_V>, <EVENT_ID1>]
    hivm.hir.set_ctrl true at ctrl[60]
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }
}
